"""Properties of brokers, groups and client metrics that were set while the broker ran.

They are stored for the next start in `kafkalog.broker-configs.json`:

    {"version": 0, "generation": 3,
     "default": {"log.retention.ms": "1000"}, "brokers": {"1": {"message.max.bytes": "9"}},
     "groups": {"readers": {"consumer.session.timeout.ms": "50000"}},
     "client-metrics": {"producers": {"interval.ms": "1000"}}}
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kafkalog_broker.config.state_copies import StateCopies
from kafkalog_spark.errors import CorruptFile

FILE = "kafkalog.broker-configs.json"
GROUPS, CLIENT_METRICS = "groups", "client-metrics"

_log = logging.getLogger(__name__)
Layer = dict[str, str]
Named = dict[str, Layer]  # properties by the name of the resource
Stored = tuple[Layer, Named, dict[str, Named]]
"""Content of the file: properties of all brokers, by node ID, and by type of resource (GROUPS, CLIENT_METRICS)."""


class DynamicConfigs:
    """Dynamic properties, as text by name.

    Attributes:
        default: Properties of all brokers.
        broker: Properties of this broker.
        of: Properties of groups and of subscriptions to client metrics, by type and name. A change replaces the mapping
            of the type.
    """

    def __init__(self, directories: Iterable[Path], node_id: int) -> None:
        self._copies = StateCopies(FILE, directories, _encoded, _decoded)
        self._node = str(node_id)
        self._others: Named = {}
        self.default: Layer = {}
        self.broker: Layer = {}
        self.of: dict[str, Named] = {GROUPS: {}, CLIENT_METRICS: {}}

    def of_group(self, group_id: str) -> Layer:
        """Return the properties of a group, which is empty for most."""
        return self.of[GROUPS].get(group_id, {})

    def client_metrics(self) -> Named:
        """Return the subscriptions to client metrics, by name."""
        return self.of[CLIENT_METRICS]

    def load(self) -> None:
        """Read the newest copy. If it is missing or damaged, no properties are set.

        Raises:
            UnsupportedFormat: If a later release wrote it.
            OSError: If it cannot be read now. The broker must not start without the properties: some may secure
                listeners, and the next change would replace the file.
        """
        try:
            stored = self._copies.load()
        except CorruptFile as error:
            _log.warning("the properties set while the broker ran are lost: %s", error)
            return
        if stored is not None:
            self.default, self._others, self.of = stored
            self.broker = self._others.pop(self._node, {})

    def save(self, default: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Replace the properties of brokers; they are on disk on return. Raises OSError if no copy was written."""
        self._write(default, broker, self.of)
        self.default, self.broker = dict(default), dict(broker)

    def save_of(self, kind: str, name: str, overrides: Mapping[str, str]) -> None:
        """Replace the properties of a group or a subscription, which are on disk on return. Raises OSError."""
        named = {**self.of[kind], name: dict(overrides)}
        if not overrides:
            del named[name]
        of = {**self.of, kind: named}
        self._write(self.default, self.broker, of)
        self.of = of

    def _write(self, default: Mapping[str, str], broker: Mapping[str, str], of: dict[str, Named]) -> None:
        self._copies.save((dict(default), {**self._others, self._node: dict(broker)}, of))


def _encoded(stored: Stored) -> dict[str, Any]:
    default, brokers, of = stored
    return {"default": default, "brokers": {node: layer for node, layer in brokers.items() if layer}, **of}


def _decoded(state: Mapping[str, Any]) -> Stored:
    default, brokers = state["default"], state["brokers"]
    of = {kind: state.get(kind, {}) for kind in (GROUPS, CLIENT_METRICS)}
    layers = [default, *(layer for named in (brokers, *of.values()) for layer in named.values())]
    if not all(isinstance(text, str) for layer in layers for text in layer.values()):
        raise TypeError("a property is not text")
    return default, brokers, of
