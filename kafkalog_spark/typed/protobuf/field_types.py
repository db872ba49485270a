"""Types and wire types of fields, and predicates of field descriptors."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Any

FieldType = IntEnum(
    "FieldType",
    "DOUBLE FLOAT INT64 UINT64 INT32 FIXED64 FIXED32 BOOL STRING GROUP MESSAGE BYTES UINT32 ENUM "
    "SFIXED32 SFIXED64 SINT32 SINT64",
)
"""FieldDescriptorProto.Type."""


class WireType(IntEnum):
    """Low three bits of a tag, with the names of Protobuf's specification."""

    VARINT = 0
    I64 = 1
    LEN = 2
    SGROUP = 3
    EGROUP = 4
    I32 = 5


_WIRE_TYPES = {
    **dict.fromkeys((FieldType.FIXED64, FieldType.SFIXED64, FieldType.DOUBLE), WireType.I64),
    **dict.fromkeys((FieldType.FIXED32, FieldType.SFIXED32, FieldType.FLOAT), WireType.I32),
    **dict.fromkeys((FieldType.STRING, FieldType.BYTES, FieldType.MESSAGE), WireType.LEN),
}


def wire_type(field: Any) -> WireType:
    """Return the wire type of a field's values when they are not packed."""
    return _WIRE_TYPES.get(field.type, WireType.VARINT)


def is_repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == 3)


def is_required(field: Any) -> bool:
    return bool(field.is_required if hasattr(field, "is_required") else field.label == 2)


def is_map(field: Any) -> bool:
    return field.type == FieldType.MESSAGE and is_repeated(field) and field.message_type.GetOptions().map_entry


def is_time(descriptor: Any, *names: str) -> bool:
    """Return whether Spark reads a message as a Timestamp or Duration: by its name and its fields, seconds and nanos.

    Args:
        descriptor: Descriptor of the message.
        names: The accepted names, without packages.
    """
    return descriptor.name in names and [field.name for field in descriptor.fields] == ["seconds", "nanos"]


@lru_cache(1024)
def checks_utf8(field: Any) -> bool:
    """Return whether Java refuses strings of a field that are not UTF-8, instead of replacing the malformed bytes.

    This is the case in proto3, in editions, with option java_string_check_utf8, and in map entries.
    """
    if field.containing_type.GetOptions().map_entry:
        return True
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto()
    field.file.CopyToProto(file)
    return file.syntax in ("proto3", "editions") or bool(file.options.java_string_check_utf8)
