"""Messages in the records of Kafka's internal topics, and those that consumers tell each other.

A message is read as a named tuple: its fields in the order of the definition, then the tagged ones; names are in
snake_case. A field that the version does not have is its default. Arrays are tuples. Any sequence in that order is
written, as are the arrays in it.

| record | begins with |
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
from kafkalog_spark.format.messages.definitions import Struct, definition, heads, struct_of, versions
from kafkalog_spark.format.messages.reader import Read
from kafkalog_spark.format.messages.values import Values
from kafkalog_spark.format.messages.wire import Malformed

_BEGIN = struct.Struct(">h")


Write = Callable[[Sequence[Any]], bytes]


class _ByBegin(dict[int, Any]):
    """Made at first use, by what a record begins with."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, begin: int) -> Any:
        made = self[begin] = self._make(begin)
        return made


class Message:
    """A message in all its versions.

    Readers and writers are compiled at first use.

    Attributes:
        name: Kafka's name of it.
        begins: Versions, by what a record of it begins with: the type of a key, the version of a value.
        read: By type of a key or version of a value: `read(data, position)` to the value and the position after it.
            Raises Malformed.
        write: By the same: `write(values)` to bytes, with the type or version in front unless it is the value of a
            metadata topic. Raises InvalidRecord for a text that is too long.
    """

    def __init__(self, name: str) -> None:
        found = definition(next(head for head in heads() if head.name == name))
        self.name = name
        is_key = found["type"] == "coordinator-key"
        self.begins = {found["apiKey"] if is_key else version: version for version in versions(found)}
        compiled = _ByBegin(lambda begin: CompiledMessage(struct_of(found, self.begins[begin]), _TUPLES))
        self.read: Mapping[int, Read] = _ByBegin(lambda begin: compiled[begin].read)
        self.write: Mapping[int, Write] = _ByBegin(
            lambda begin: _writer(compiled[begin], b"" if found["type"] == "metadata" else _BEGIN.pack(begin))
        )
        self._newest = max(self.begins)

    def decode(self, data: bytes, what: str = "") -> Any:
        """Read a coordinator's key or value. Bytes after it are ignored.

        Args:
            data: From the type or version on.
            what: Name of the message in errors; by default Kafka's name.

        Raises:
            UnsupportedFormat: For another type of key or version of a value.
            CorruptLog: If the bytes do not fit the definition.
        """
        what = what or self.name
        begin = _begin(data, what)
        if begin not in self.begins:
            known = f"0 to {self._newest}" if len(self.begins) > 1 else self._newest
            raise UnsupportedFormat(f"{what} of version {begin}, expected {known}")
        return _decoded(self.read[begin], data, what)

    def encode(self, values: Sequence[Any], version: int | None = None) -> bytes:
        """Write a coordinator's key or value, in the newest version unless another one is given.

        Raises:
            InvalidRecord: If a text is too long.
        """
        return self.write[self._newest if version is None else version](values)


message = cache(Message)
"""The message of a name."""


def decode_key(topic: str, data: bytes) -> tuple[int, Any] | None:
    """Return type and key of a record of a coordinator's topic; None for an unknown type.

    Raises:
        CorruptLog: If the bytes do not fit the definition.
    """
    what = "a key of " + topic
    kind = _begin(data, what)
    key = _keys(topic).get(kind)
    return None if key is None else (kind, _decoded(message(key).read[kind], data, what))


@cache
def _keys(topic: str) -> Mapping[int, str]:
    """Names of a topic's keys by their type."""
    keys = [head for head in heads() if head.topic == topic and head.type == "coordinator-key"]
    return {head.api_key: head.name for head in keys if head.api_key is not None}


def _tuple_class(found: Struct, defaults: Mapping[str, Any], annotations: Mapping[str, str]) -> type:
    return namedtuple(found.name, list(defaults))  # type: ignore[misc]


_TUPLES = Values(_tuple_class, is_tuple=True)


def _writer(compiled: CompiledMessage, head: bytes) -> Write:
    write: Callable[[Sequence[Any], bytearray], Any] = compiled.write
    return lambda values: bytes(write(values, bytearray(head)))


def _begin(data: bytes, what: str) -> int:
    """The type or version that a key or value begins with."""
    if len(data) < _BEGIN.size:
        raise CorruptLog(f"{what}: it ends early, at byte {len(data)} of {len(data)}")
    return int.from_bytes(data[: _BEGIN.size], "big", signed=True)


def _decoded(read: Read, data: bytes, what: str) -> Any:
    try:
        return read(data, _BEGIN.size)[0]
    except Malformed as error:
        raise CorruptLog(f"{what}: {error}, at byte {error.position} of {len(data)}") from None
