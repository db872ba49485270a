"""Properties of brokers, groups and client metrics that were set while the broker ran.

They are stored in `kafkalog.broker-configs.json`, so that they stay in effect after a restart:

    {"version": 0, "generation": 3,
     "default": {"log.retention.ms": "1000"}, "brokers": {"1": {"message.max.bytes": "9"}},
     "groups": {"readers": {"consumer.session.timeout.ms": "50000"}},
     "client-metrics": {"producers": {"interval.ms": "1000"}}}
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kafkalog_broker.config.state_copies import StateCopies
from kafkalog_spark.errors import CorruptFile

FILE = "kafkalog.broker-configs.json"
GROUPS, CLIENT_METRICS = "groups", "client-metrics"

_log = logging.getLogger(__name__)
Overrides = dict[str, str]  # properties as text, by name
OverridesByResource = dict[str, Overrides]


class StoredConfigs(NamedTuple):
    """Content of the file.

    Attributes:
        default: Properties of all brokers.
        brokers: Properties of single brokers, by node ID.
        resources: Properties of groups and of subscriptions to client metrics, by type (GROUPS, CLIENT_METRICS) and
            name.
    """

    default: Overrides
    brokers: OverridesByResource
    resources: dict[str, OverridesByResource]


class DynamicConfigs:
    """Dynamic properties, as text by name.

    Attributes:
        default: Properties of all brokers.
        broker: Properties of this broker.
        resources: Properties of groups and of subscriptions to client metrics, by type and name. A change replaces the
            mapping of its type.
    """

    def __init__(self, directories: Iterable[Path], node_id: int) -> None:
        self._copies = StateCopies(FILE, directories, _encode, _decode)
        self._node = str(node_id)
        self._other_brokers: OverridesByResource = {}
        self.default: Overrides = {}
        self.broker: Overrides = {}
        self.resources: dict[str, OverridesByResource] = {GROUPS: {}, CLIENT_METRICS: {}}

    def group_overrides(self, group_id: str) -> Overrides:
        """Return the properties of a group; most groups have none."""
        return self.resources[GROUPS].get(group_id, {})

    def client_metrics(self) -> OverridesByResource:
        """Return the subscriptions to client metrics, by name."""
        return self.resources[CLIENT_METRICS]

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
            self.default, self._other_brokers, self.resources = stored
            self.broker = self._other_brokers.pop(self._node, {})

    def save(self, default: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Replace the properties of brokers and sync them to disk. Raises OSError if no copy was written."""
        self._write(default, broker, self.resources)
        self.default, self.broker = dict(default), dict(broker)

    def save_resource(self, kind: str, name: str, overrides: Mapping[str, str]) -> None:
        """Replace the properties of a group or a subscription and sync them to disk. Raises OSError."""
        of_kind = {**self.resources[kind], name: dict(overrides)}
        if not overrides:
            del of_kind[name]
        resources = {**self.resources, kind: of_kind}
        self._write(self.default, self.broker, resources)
        self.resources = resources

    def _write(
        self,
        default: Mapping[str, str],
        broker: Mapping[str, str],
        resources: dict[str, OverridesByResource],
    ) -> None:
        brokers = {**self._other_brokers, self._node: dict(broker)}
        self._copies.save(StoredConfigs(dict(default), brokers, resources))


def _encode(stored: StoredConfigs) -> dict[str, Any]:
    brokers = {node: overrides for node, overrides in stored.brokers.items() if overrides}
    return {"default": stored.default, "brokers": brokers, **stored.resources}


def _decode(state: Mapping[str, Any]) -> StoredConfigs:
    default, brokers = state["default"], state["brokers"]
    resources = {kind: state.get(kind, {}) for kind in (GROUPS, CLIENT_METRICS)}
    by_name = [brokers, *resources.values()]
    all_overrides = [default, *(overrides for named in by_name for overrides in named.values())]
    if not all(isinstance(text, str) for overrides in all_overrides for text in overrides.values()):
        raise TypeError("a property is not text")
    return StoredConfigs(default, brokers, resources)
