"""What the records of share groups are made of: keys are classic, values flexible (KIP-482)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TypeVar
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.frames import uvarint
from kafkalog_spark.errors import UnsupportedFormat
from kafkalog_spark.format.internal_records import MessageReader

I8 = struct.Struct(">b")
I16 = struct.Struct(">h")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")

_LONGEST_STRING = 2**15 - 1
_VERSION = 0
_ZERO = UUID(int=0)

T = TypeVar("T")


def key_string(text: str) -> bytes:
    """Raises BrokerError for what does not fit: a flexible request can name what a key cannot hold."""
    data = text.encode()
    if len(data) > _LONGEST_STRING:
        raise BrokerError(ErrorCode.unknown_server_error, f"{len(data)} bytes of text, at most {_LONGEST_STRING} fit")
    return I16.pack(len(data)) + data


def array(items: Sequence[bytes]) -> bytes:
    """Elements that are encoded already."""
    return uvarint(len(items) + 1) + b"".join(items)


def int32s(numbers: Iterable[int]) -> bytes:
    return array([I32.pack(number) for number in numbers])


def tagged_number(tag: int, form: struct.Struct, number: int, default: int) -> bytes:
    """The tagged fields of a message that has one of them, a number: left out where it is the default."""
    if number == default:
        return b"\0"
    return bytes((1, tag, form.size)) + form.pack(number)


def value_reader(value: bytes, what: str) -> MessageReader:
    """A reader past the version that a value begins with. Raises UnsupportedFormat for another than 0."""
    reader = MessageReader(value, what)
    version = reader.int16()
    if version != _VERSION:
        raise UnsupportedFormat(f"{what} of version {version}, expected {_VERSION}")
    reader.flexible = True
    return reader


def read_uuid(reader: MessageReader) -> UUID:
    return UUID(bytes=reader.take(16))


def read_int32s(reader: MessageReader) -> tuple[int, ...]:
    return tuple(reader.int32() for _ in range(reader.array_length()))


def read_number(reader: MessageReader, tag: int, form: struct.Struct, default: int) -> int:
    """A tagged number at the end of a message."""
    found = reader.tagged_fields().get(tag)
    if found is None:
        return default
    if len(found) != form.size:
        raise reader.wrong(f"tagged field {tag} has {len(found)} bytes, expected {form.size}")
    return int(form.unpack(found)[0])


VALUE_VERSION = I16.pack(_VERSION)
"""What each value begins with."""
