"""Messages that the kernel does not read by itself, written anew so that it does: decided in plain Python, field by
field, as Java's CodedInputStream and DynamicMessage decide.

They are those with a message in several parts, with a message that another member of its oneof takes the place of, and
with groups inside unknown groups. No library writes them, so nothing here is fast.
"""

from __future__ import annotations

from typing import Any

from kafkalog_spark.typed.protobuf.plan import Fault
from kafkalog_spark.typed.protobuf.types import ENUM, MESSAGE, STRING, checks_utf8, is_repeated
from kafkalog_spark.typed.protobuf.wire import MOST_NESTED

_WIRES = {1: 1, 2: 5, 6: 1, 7: 5, 9: 2, 11: 2, 12: 2, 15: 5, 16: 1}
"""Wire types of those types of fields that are no varints."""


class Malformed(Exception):
    """A value that Java's parser, or Spark after it, refuses. fault: why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def joined(value: bytes, descriptor: Any) -> bytes:
    """The same message with each message in it in one part, and without unknown fields. Raises Malformed."""
    message = _Message(descriptor, root=True)
    message.read(value, 0)
    return message.written()


class _Message:
    """A message while it is read. Memory: its bytes, and an object for each message in it that is not repeated."""

    def __init__(self, descriptor: Any, *, root: bool = False) -> None:
        self._descriptor, self._root = descriptor, root
        self._raw = bytearray()  # all but what `_parts` has; which of a oneof counts is the one that comes last
        self._parts: dict[int, _Message] = {}

    def read(self, data: bytes, depth: int) -> None:
        """Read a part of the message. depth: messages and groups that it lies in."""
        at, end, fields = 0, len(data), self._descriptor.fields_by_number
        while at < end:
            begin = at
            tag, at = _uvarint(data, at, end)
            wire, number = tag & 7, (tag & 0xFFFFFFFF) >> 3
            if number == 0:
                raise Malformed(Fault.TAG)
            field = fields.get(number)
            value = at
            at = _passed(data, at, end, wire, number, depth)
            if field is None:
                continue
            own = _WIRES.get(field.type, 0)
            if wire != own and not (wire == 2 and own != 2 and is_repeated(field)):
                if self._root:
                    raise Malformed(Fault.MISMATCH)
                continue
            if wire == 2:
                _, value = _uvarint(data, value, end)
            if field.type == STRING and checks_utf8(field):
                _check_utf8(data[value:at])
            if field.type == ENUM and wire == 0 and field.enum_type.is_closed and not _has(field, data[value:at]):
                self._raw += data[begin:at]  # an unknown field, which takes nobody's place
                continue
            self._clear_others(field)
            if field.type != MESSAGE:
                self._raw += data[begin:at]
                continue
            if depth >= MOST_NESTED:
                raise Malformed(Fault.DEPTH)
            part = None if is_repeated(field) else self._parts.get(number)
            if part is None:
                part = _Message(field.message_type)
            part.read(data[value:at], depth + 1)
            if is_repeated(field):
                self._raw += _delimited(number, part.written())
            else:
                self._parts[number] = part

    def _clear_others(self, field: Any) -> None:
        if self._parts and field.containing_oneof is not None:
            for one in field.containing_oneof.fields:
                if one.number != field.number:
                    self._parts.pop(one.number, None)

    def written(self) -> bytes:
        """The message in one part."""
        parts = (_delimited(number, part.written()) for number, part in self._parts.items())
        return bytes(self._raw) + b"".join(parts)


def _has(field: Any, varint: bytes) -> bool:
    number = _uvarint(varint, 0, len(varint))[0] & 0xFFFFFFFF
    return (number ^ 0x80000000) - 0x80000000 in field.enum_type.values_by_number


def _check_utf8(text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError:
        raise Malformed(Fault.UTF8) from None


def _uvarint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """An unsigned varint of at most ten bytes -> (its 64 bits, position after it)."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise Malformed(Fault.TRUNCATED)


def _passed(data: bytes, at: int, end: int, wire: int, number: int, depth: int) -> int:
    """Position after a value. depth: messages and groups that it lies in."""
    if wire == 3:
        return _passed_group(data, at, end, number, depth + 1)
    if wire == 0:
        at = _uvarint(data, at, end)[1]
    elif wire in (1, 5):
        at += 8 if wire == 1 else 4
    elif wire == 2:
        size, at = _uvarint(data, at, end)
        size &= 0xFFFFFFFF
        if size >= 2**31:
            raise Malformed(Fault.TRUNCATED)
        at += size
    else:
        raise Malformed(Fault.GROUP if wire == 4 else Fault.TAG)
    if at > end:
        raise Malformed(Fault.TRUNCATED)
    return at


def _passed_group(data: bytes, at: int, end: int, number: int, depth: int) -> int:
    """Position after the end of a group."""
    if depth > MOST_NESTED:
        raise Malformed(Fault.DEPTH)
    while True:
        tag, at = _uvarint(data, at, end)
        wire, inner = tag & 7, (tag & 0xFFFFFFFF) >> 3
        if inner == 0:
            raise Malformed(Fault.TAG)
        if wire == 4:
            if inner != number:
                raise Malformed(Fault.GROUP)
            return at
        at = _passed(data, at, end, wire, inner, depth)


def _delimited(number: int, content: bytes) -> bytes:
    """A field of wire type 2."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
