"""Messages that the kernel cannot read, rewritten so that it can, as Java's CodedInputStream and DynamicMessage decide.

These are messages whose submessage arrives in several parts, messages of which a later member of the same oneof
replaces an earlier one, and groups inside unknown groups. No known library writes them, so this plain Python code is
not optimised.
"""

from __future__ import annotations

from typing import Any

from kafkalog_spark.format.varints import UVARLONG_BYTES, read_unsigned, uvarint
from kafkalog_spark.typed.protobuf import types
from kafkalog_spark.typed.protobuf.plan import ProtobufFault
from kafkalog_spark.typed.protobuf.wire import MOST_NESTED


class Malformed(Exception):
    """A value that Java's parser, or Spark after it, refuses. fault: why."""

    def __init__(self, fault: ProtobufFault) -> None:
        super().__init__(fault)
        self.fault = fault


def merged(value: bytes, descriptor: Any) -> bytes:
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
                raise Malformed(ProtobufFault.TAG)
            field = fields.get(number)
            value = at
            at = _passed(data, at, end, wire, number, depth)
            if field is None:
                continue
            own = types.wire_type(field)
            if wire != own and not (wire == 2 and own != 2 and types.is_repeated(field)):
                if self._root:
                    raise Malformed(ProtobufFault.MISMATCH)
                continue
            if wire == 2:
                _, value = _uvarint(data, value, end)
            if field.type == types.FieldType.STRING and types.checks_utf8(field):
                try:
                    data[value:at].decode()
                except UnicodeDecodeError:
                    raise Malformed(ProtobufFault.UTF8) from None
            closed = field.type == types.FieldType.ENUM and wire == 0 and field.enum_type.is_closed
            if closed and _signed(_uvarint(data, value, at)[0], 32) not in field.enum_type.values_by_number:
                self._raw += data[begin:at]  # an unknown field, which takes nobody's place
                continue
            if self._parts and field.containing_oneof is not None:
                for member in field.containing_oneof.fields:
                    if member.number != number:
                        self._parts.pop(member.number, None)
            if field.type != types.FieldType.MESSAGE:
                self._raw += data[begin:at]
                continue
            if depth >= MOST_NESTED:
                raise Malformed(ProtobufFault.DEPTH)
            part = None if types.is_repeated(field) else self._parts.get(number)
            if part is None:
                part = _Message(field.message_type)
            part.read(data[value:at], depth + 1)
            if types.is_repeated(field):
                self._raw += _delimited(number, part.written())
            else:
                self._parts[number] = part

    def written(self) -> bytes:
        parts = (_delimited(number, part.written()) for number, part in self._parts.items())
        return bytes(self._raw) + b"".join(parts)


def _uvarint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """An unsigned varint of at most ten bytes -> (its 64 bits, position after it)."""
    try:
        value, at = read_unsigned(data, at, min(end, at + UVARLONG_BYTES))
    except IndexError:
        raise Malformed(ProtobufFault.TRUNCATED) from None
    return value & (2**64 - 1), at


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
            raise Malformed(ProtobufFault.TRUNCATED)
        at += size
    else:
        raise Malformed(ProtobufFault.GROUP if wire == 4 else ProtobufFault.TAG)
    if at > end:
        raise Malformed(ProtobufFault.TRUNCATED)
    return at


def _passed_group(data: bytes, at: int, end: int, number: int, depth: int) -> int:
    if depth > MOST_NESTED:
        raise Malformed(ProtobufFault.DEPTH)
    while True:
        tag, at = _uvarint(data, at, end)
        wire, inner = tag & 7, (tag & 0xFFFFFFFF) >> 3
        if inner == 0:
            raise Malformed(ProtobufFault.TAG)
        if wire == 4:
            if inner != number:
                raise Malformed(ProtobufFault.GROUP)
            return at
        at = _passed(data, at, end, wire, inner, depth)


def _delimited(number: int, content: bytes) -> bytes:
    return uvarint(number << 3 | 2) + uvarint(len(content)) + content


def _signed(value: int, bits: int) -> int:
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
