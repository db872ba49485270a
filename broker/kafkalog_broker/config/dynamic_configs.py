"""Properties of brokers, groups and client metrics that were set while a broker ran, kept for its next start.

Kafka keeps them in its controllers' metadata log. Here it is one JSON file, `kafkalog.broker-configs.json`:

    {"version": 0, "generation": 3,
     "default": {"log.retention.ms": "1000"}, "brokers": {"1": {"message.max.bytes": "9"}},
     "groups": {"readers": {"consumer.session.timeout.ms": "50000"}},
     "client-metrics": {"producers": {"interval.ms": "1000"}}}

Every log directory gets a copy and the highest generation is read, as with topics: one failed directory forgets
nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format.atomic_file import read_whole, replace_files

FILE = "kafkalog.broker-configs.json"
GROUPS, CLIENT_METRICS = "groups", "client-metrics"
VERSION = 0

_log = logging.getLogger(__name__)
Layer = dict[str, str]
Named = dict[str, Layer]
"""Properties that were set, by the name of the resource."""


class DynamicConfigs:
    """`default`: set for all brokers. `broker`: set for this one. Both by property name, as text."""

    def __init__(self, directories: Iterable[Path], node_id: int) -> None:
        self._files = [Path(directory) / FILE for directory in directories]
        self._node = str(node_id)
        self._generation = 0
        self._others: Named = {}
        self.default: Layer = {}
        self.broker: Layer = {}
        self.of: dict[str, Named] = {GROUPS: {}, CLIENT_METRICS: {}}
        """Dynamic properties of groups and of subscriptions to client metrics. A change replaces those of a type."""

    def of_group(self, group_id: str) -> Layer:
        """Properties of a group; empty for most."""
        return self.of[GROUPS].get(group_id, {})

    def load(self) -> None:
        """Read the newest copy; none is as good as an empty one. A damaged copy is passed over with a warning. Raises
        UnsupportedFormat for the file of a later release."""
        for file in self._files:
            try:
                generation, default, brokers, of = parse(read_whole(file))
            except OSError:
                continue  # no file yet, or a directory that failed: others have a copy
            except CorruptFile as error:
                _log.warning("%s", error.at(path=str(file), hint="the properties set in it are lost"))
                continue
            except UnsupportedFormat as error:
                raise error.at(path=str(file)) from None
            if generation > self._generation:
                self._generation, self.default = generation, default
                self.broker = brokers.pop(self._node, {})
                self._others, self.of = brokers, of

    def save(self, default: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Replace both; on disk on return. Raises OSError when no directory took it."""
        self._write(default, broker, self.of)
        self.default, self.broker = dict(default), dict(broker)

    def save_of(self, kind: str, name: str, overrides: Mapping[str, str]) -> None:
        """Replace what is set for a group or a subscription; on disk on return. Raises OSError when no directory took
        it."""
        named = {**self.of[kind], name: dict(overrides)}
        if not overrides:
            del named[name]
        of = {**self.of, kind: named}
        self._write(self.default, self.broker, of)
        self.of = of

    def _write(self, default: Mapping[str, str], broker: Mapping[str, str], of: Mapping[str, Named]) -> None:
        data = dump(self._generation + 1, default, {**self._others, self._node: broker}, of)
        replace_files(self._files, data, private=True)  # passwords may be among the properties
        self._generation += 1


def dump(
    generation: int, default: Mapping[str, str], brokers: Mapping[str, Mapping[str, str]], of: Mapping[str, Named]
) -> bytes:
    content: dict[str, object] = {
        "version": VERSION,
        "generation": generation,
        "default": dict(default),
        "brokers": {node: dict(layer) for node, layer in brokers.items() if layer},
        **{kind: named for kind, named in of.items() if named},
    }
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode("ascii")


def parse(data: bytes) -> tuple[int, Layer, Named, dict[str, Named]]:
    """Raises CorruptFile for anything but what `dump` writes, UnsupportedFormat for a later version."""
    try:
        content = json.loads(data)
        version = content["version"]
        generation, default, brokers = (content.get(key) for key in ("generation", "default", "brokers"))
        of = {kind: content.get(kind, {}) for kind in (GROUPS, CLIENT_METRICS)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"this is not the JSON that was written: {error}") from None
    if version != VERSION:
        raise UnsupportedFormat(f"version {version} of {FILE}, only {VERSION} is known")
    named = (brokers, *of.values())
    if (
        type(generation) is not int
        or not all(isinstance(one, dict) for one in named)
        or not all(map(_is_layer, [default, *(layer for one in named for layer in one.values())]))
    ):
        raise CorruptFile("expected generation, default, brokers, groups and client-metrics")
    return generation, default, brokers, of


def _is_layer(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
