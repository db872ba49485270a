"""Rewriting of messages that the kernel cannot decode, with the result of Java's CodedInputStream and DynamicMessage.

Such a message contains a submessage in several parts, a submessage that a later member of its oneof replaces, or a
group inside an unknown group. No known library writes these, so this code is not optimised.
"""

from __future__ import annotations

from typing import Any

from kafkalog_spark.format.varints import UVARLONG_BYTES, read_unsigned, uvarint
from kafkalog_spark.typed.protobuf import field_types
from kafkalog_spark.typed.protobuf.field_types import WireType
from kafkalog_spark.typed.protobuf.plan import ProtobufFault
from kafkalog_spark.typed.protobuf.wire import MAX_DEPTH


class Malformed(Exception):
    """A value that Java's parser, or Spark after it, refuses. `fault` is the reason."""

    def __init__(self, fault: ProtobufFault) -> None:
        super().__init__(fault)
        self.fault = fault


def merge_submessages(value: bytes, descriptor: Any) -> bytes:
    """Return an equal message in which each submessage is in one part. Unknown fields are removed.

    Args:
        value: The message.
        descriptor: Its descriptor.

    Raises:
        Malformed: If the message is malformed.
    """
    message = _Message(descriptor, root=True)
    message.read(value, 0)
    return message.serialized()


class _Message:
    """A message while its parts are merged."""

    def __init__(self, descriptor: Any, *, root: bool = False) -> None:
        self._descriptor, self._root = descriptor, root
        self._other_fields = bytearray()  # all fields that are not in `_submessages`, in their order
        self._submessages: dict[int, _Message] = {}  # the submessages that are not repeated, by field number

    def read(self, data: bytes, depth: int) -> None:
        """Merge a part of the message. depth: number of enclosing messages and groups."""
        at, end, fields = 0, len(data), self._descriptor.fields_by_number
        while at < end:
            begin = at
            tag, at = _uvarint(data, at, end)
            wire, number = tag & 7, (tag & 0xFFFFFFFF) >> 3
            if number == 0:
                raise Malformed(ProtobufFault.TAG)
            field = fields.get(number)
            value = at
            at = _skip_value(data, at, end, wire, number, depth)
            if field is None:
                continue
            expected_wire = field_types.wire_type(field)
            if wire != expected_wire and not (
                wire == WireType.LEN and expected_wire != WireType.LEN and field_types.is_repeated(field)
            ):
                if self._root:
                    raise Malformed(ProtobufFault.MISMATCH)
                continue
            if wire == WireType.LEN:
                _, value = _uvarint(data, value, end)
            if field.type == field_types.FieldType.STRING and field_types.checks_utf8(field):
                try:
                    data[value:at].decode()
                except UnicodeDecodeError:
                    raise Malformed(ProtobufFault.UTF8) from None
            is_closed_enum = (
                field.type == field_types.FieldType.ENUM and wire == WireType.VARINT and field.enum_type.is_closed
            )
            if is_closed_enum and _signed(_uvarint(data, value, at)[0], 32) not in field.enum_type.values_by_number:
                self._other_fields += data[begin:at]  # an unknown field, which does not clear its oneof
                continue
            if self._submessages and field.containing_oneof is not None:
                for member in field.containing_oneof.fields:
                    if member.number != number:
                        self._submessages.pop(member.number, None)
            if field.type != field_types.FieldType.MESSAGE:
                self._other_fields += data[begin:at]
                continue
            if depth >= MAX_DEPTH:
                raise Malformed(ProtobufFault.DEPTH)
            if field_types.is_repeated(field):
                submessage = _Message(field.message_type)
                submessage.read(data[value:at], depth + 1)
                self._other_fields += _encode_field(number, submessage.serialized())
            else:
                submessage = self._submessages.setdefault(number, _Message(field.message_type))
                submessage.read(data[value:at], depth + 1)

    def serialized(self) -> bytes:
        submessages = (_encode_field(number, part.serialized()) for number, part in self._submessages.items())
        return bytes(self._other_fields) + b"".join(submessages)


def _uvarint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read an unsigned varint of at most ten bytes -> (its 64 bits, position after it)."""
    try:
        value, at = read_unsigned(data, at, min(end, at + UVARLONG_BYTES))
    except IndexError:
        raise Malformed(ProtobufFault.TRUNCATED) from None
    return value & (2**64 - 1), at


def _skip_value(data: bytes, at: int, end: int, wire: int, number: int, depth: int) -> int:
    """Return the position after a value. depth: number of enclosing messages and groups."""
    if wire == WireType.SGROUP:
        return _skip_group(data, at, end, number, depth + 1)
    if wire == WireType.VARINT:
        at = _uvarint(data, at, end)[1]
    elif wire in (WireType.I64, WireType.I32):
        at += 8 if wire == WireType.I64 else 4
    elif wire == WireType.LEN:
        size, at = _uvarint(data, at, end)
        size &= 0xFFFFFFFF
        if size >= 2**31:
            raise Malformed(ProtobufFault.TRUNCATED)
        at += size
    else:
        raise Malformed(ProtobufFault.GROUP if wire == WireType.EGROUP else ProtobufFault.TAG)
    if at > end:
        raise Malformed(ProtobufFault.TRUNCATED)
    return at


def _skip_group(data: bytes, at: int, end: int, number: int, depth: int) -> int:
    if depth > MAX_DEPTH:
        raise Malformed(ProtobufFault.DEPTH)
    while True:
        tag, at = _uvarint(data, at, end)
        wire, inner = tag & 7, (tag & 0xFFFFFFFF) >> 3
        if inner == 0:
            raise Malformed(ProtobufFault.TAG)
        if wire == WireType.EGROUP:
            if inner != number:
                raise Malformed(ProtobufFault.GROUP)
            return at
        at = _skip_value(data, at, end, wire, inner, depth)


def _encode_field(number: int, content: bytes) -> bytes:
    return uvarint(number << 3 | WireType.LEN) + uvarint(len(content)) + content


def _signed(value: int, bits: int) -> int:
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
