"""Messages in the records of Kafka's internal topics, and in the metadata that consumers of a group exchange.

A message is read as a named tuple of its fields in the order of the definition, tagged fields last, with names in
snake_case. A field that the version does not have has its default. Arrays are tuples. Any sequence in that order can be
written; so can its arrays.

| record | prefix |
|---|---|
| key of a coordinator's topic | its type as i16 (`apiKey`); fields of version 0 |
| value of a coordinator's topic | the version as i16 |
| value of a metadata topic | frame version, type and version as unsigned varints |
"""

from __future__ import annotations

import struct
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.format.messages.compiler import CompiledMessage
from kafkalog_spark.format.messages.definitions import (
    Struct,
    definition_locations,
    read_definition,
    struct_of,
    versions,
)
from kafkalog_spark.format.messages.reader import Read
from kafkalog_spark.format.messages.values import Values
from kafkalog_spark.format.messages.wire import Malformed

_PREFIX = struct.Struct(">h")


Write = Callable[[Sequence[Any]], bytes]


class _ByPrefix(dict[int, Any]):
    """Values by the prefix of a record, each made at its first use."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, prefix: int) -> Any:
        value = self[prefix] = self._make(prefix)
        return value


class Message:
    """A message in all its versions.

    Readers and writers are compiled at first use.

    Attributes:
        name: Kafka's name of the message.
        version_by_prefix: Versions by the prefix of a record: the type of a key, or the version of a value.
        read: Readers by prefix: `read(data, position)` returns the value and the position after it. Raises Malformed.
        write: Writers by prefix: `write(values)` returns bytes, which include the prefix unless the message is a value
            of a metadata topic. Raises InvalidRecord if a text is too long.
    """

    def __init__(self, name: str) -> None:
        definition = read_definition(next(location for location in definition_locations() if location.name == name))
        self.name = name
        is_key = definition["type"] == "coordinator-key"
        self.version_by_prefix = {
            definition["apiKey"] if is_key else version: version for version in versions(definition)
        }
        compiled = _ByPrefix(
            lambda prefix: CompiledMessage(struct_of(definition, self.version_by_prefix[prefix]), _TUPLES)
        )
        self.read: Mapping[int, Read] = _ByPrefix(lambda prefix: compiled[prefix].read)
        self.write: Mapping[int, Write] = _ByPrefix(
            lambda prefix: _writer(compiled[prefix], b"" if definition["type"] == "metadata" else _PREFIX.pack(prefix))
        )
        self._newest = max(self.version_by_prefix)

    def decode(self, data: bytes, described: str = "") -> Any:
        """Read a coordinator's key or value. Bytes after it are ignored.

        Args:
            data: The record's key or value, including the prefix.
            described: Name of the message for errors; Kafka's name by default.

        Raises:
            UnsupportedFormat: If the type of the key or the version of the value is unknown.
            CorruptLog: If the bytes do not fit the definition.
        """
        described = described or self.name
        prefix = _prefix(data, described)
        if prefix not in self.version_by_prefix:
            known = f"0 to {self._newest}" if len(self.version_by_prefix) > 1 else self._newest
            raise UnsupportedFormat(f"{described} of version {prefix}, expected {known}")
        return _decoded(self.read[prefix], data, described)

    def encode(self, values: Sequence[Any], version: int | None = None) -> bytes:
        """Write a coordinator's key or value, in the newest version unless another one is given.

        Raises:
            InvalidRecord: If a text is too long.
        """
        return self.write[self._newest if version is None else version](values)


message = cache(Message)
"""Return the message with one of Kafka's names."""


def decode_key(topic: str, data: bytes) -> tuple[int, Any] | None:
    """Return the type and the content of a key in a coordinator's topic, or None for an unknown type.

    Raises:
        CorruptLog: If the bytes do not fit the definition.
    """
    described = "a key of " + topic
    key_type = _prefix(data, described)
    key = _keys(topic).get(key_type)
    return None if key is None else (key_type, _decoded(message(key).read[key_type], data, described))


@cache
def _keys(topic: str) -> Mapping[int, str]:
    """Return the names of a topic's key messages by type."""
    keys = [
        location
        for location in definition_locations()
        if location.topic == topic and location.type == "coordinator-key"
    ]
    return {location.api_key: location.name for location in keys if location.api_key is not None}


def _tuple_class(struct: Struct, defaults: Mapping[str, Any], annotations: Mapping[str, str]) -> type:
    return namedtuple(struct.name, list(defaults))  # type: ignore[misc]


_TUPLES = Values(_tuple_class, is_tuple=True)


def _writer(compiled: CompiledMessage, prefix: bytes) -> Write:
    write: Callable[[Sequence[Any], bytearray], Any] = compiled.write
    return lambda values: bytes(write(values, bytearray(prefix)))


def _prefix(data: bytes, described: str) -> int:
    """Return the type or version at the beginning of a key or value."""
    if len(data) < _PREFIX.size:
        raise CorruptLog(f"{described}: it ends early, at byte {len(data)} of {len(data)}")
    return int.from_bytes(data[: _PREFIX.size], "big", signed=True)


def _decoded(read: Read, data: bytes, described: str) -> Any:
    try:
        return read(data, _PREFIX.size)[0]
    except Malformed as error:
        raise CorruptLog(f"{described}: {error}, at byte {error.position} of {len(data)}") from None
