"""Protobuf fields in Spark, and so in Arrow (Spark's `protobuf.utils.SchemaConverters`), and the kind of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import boolean, option, parsed_fields, specs_of
from kafkalog_spark.typed.protobuf.plan import Kind
from kafkalog_spark.typed.schema_limits import MAX_COLUMNS, depth_parser, recursion_bounded

MOST_RECURSION = 10
FieldType = IntEnum(
    "FieldType",
    "DOUBLE FLOAT INT64 UINT64 INT32 FIXED64 FIXED32 BOOL STRING GROUP MESSAGE BYTES UINT32 ENUM "
    "SFIXED32 SFIXED64 SINT32 SINT64",
)
"""FieldDescriptorProto.Type."""
VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 0, 1, 2, 5  # wire types
_WIRE_TYPES = {
    **dict.fromkeys((FieldType.FIXED64, FieldType.SFIXED64, FieldType.DOUBLE), EIGHT_BYTES),
    **dict.fromkeys((FieldType.FIXED32, FieldType.SFIXED32, FieldType.FLOAT), FOUR_BYTES),
    **dict.fromkeys((FieldType.STRING, FieldType.BYTES, FieldType.MESSAGE), SIZED),
}
_ARROW = {
    FieldType.DOUBLE: (pa.float64(), Kind.DOUBLE),
    FieldType.FLOAT: (pa.float32(), Kind.FLOAT),
    FieldType.INT64: (pa.int64(), Kind.INT64),
    FieldType.UINT64: (pa.int64(), Kind.INT64),
    FieldType.INT32: (pa.int32(), Kind.INT32),
    FieldType.FIXED64: (pa.int64(), Kind.FIXED64),
    FieldType.FIXED32: (pa.int32(), Kind.FIXED32),
    FieldType.BOOL: (pa.bool_(), Kind.BOOL),
    FieldType.STRING: (pa.string(), Kind.STRING),
    FieldType.BYTES: (pa.binary(), Kind.BYTES),
    FieldType.UINT32: (pa.int32(), Kind.INT32),
    FieldType.ENUM: (pa.string(), Kind.ENUM_NAME),
    FieldType.SFIXED32: (pa.int32(), Kind.FIXED32),
    FieldType.SFIXED64: (pa.int64(), Kind.FIXED64),
    FieldType.SINT32: (pa.int32(), Kind.SINT32),
    FieldType.SINT64: (pa.int64(), Kind.SINT64),
}
_WIDE = {
    FieldType.UINT32: (pa.int64(), Kind.UINT32_WIDE),
    FieldType.UINT64: (pa.decimal128(20, 0), Kind.UINT64_WIDE),
}
"""With upcast.unsigned.ints. Spark widens uint32 and uint64, not fixed32 and fixed64."""


def _never(name: str, text: str) -> bool:
    if boolean(name, text):
        raise OptionError(f"option '{name}' is not read by kafkalog", hint="from_protobuf of Spark does it")
    return False


@dataclass(frozen=True, kw_only=True)
class ProtobufReadOptions:
    """Options of `from_protobuf` that say what a field becomes. recursion: below 1, recursive messages are refused."""

    recursion: int = option("recursive.fields.max.depth", depth_parser(MOST_RECURSION, strict=False), "-1")
    emit_defaults: bool = option("emit.default.values", boolean, "false")
    enums_as_ints: bool = option("enums.as.ints", boolean, "false")
    wide: bool = option("upcast.unsigned.ints", boolean, "false")
    empty_messages: bool = option("retain.empty.message.types", _never, "false")
    plain_wrappers: bool = option("unwrap.primitive.wrapper.types", _never, "false")
    any_as_json: bool = option("convert.any.fields.to.json", _never, "false")


OPTIONS = specs_of(ProtobufReadOptions)


def read_options_of(options: Mapping[str, str]) -> ProtobufReadOptions:
    return ProtobufReadOptions(**parsed_fields(ProtobufReadOptions, options))


def wire_type(field: Any) -> int:
    """How a field is stored, where it is not packed."""
    return _WIRE_TYPES.get(field.type, VARINT)


def is_repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == 3)


def is_required(field: Any) -> bool:
    return bool(field.is_required if hasattr(field, "is_required") else field.label == 2)


def is_map(field: Any) -> bool:
    return field.type == FieldType.MESSAGE and is_repeated(field) and field.message_type.GetOptions().map_entry


def is_time(descriptor: Any, *names: str) -> bool:
    """True for a message of one of these names, Timestamp or Duration, that has seconds and nanos as Google's have."""
    return descriptor.name in names and [each.name for each in descriptor.fields] == ["seconds", "nanos"]


def scalar(field: Any, read_options: ProtobufReadOptions) -> tuple[pa.DataType, Kind]:
    """The Arrow type and kind of a field that is no message."""
    if field.type == FieldType.ENUM and read_options.enums_as_ints:
        return pa.int32(), Kind.ENUM_INT
    if read_options.wide and field.type in _WIDE:
        return _WIDE[field.type]
    return _ARROW[field.type]


def columns_of(descriptor: Any, read_options: ProtobufReadOptions) -> pa.Schema:
    """The columns of a message. Raises OptionError for what Spark, or this reader, refuses."""
    with recursion_bounded("a schema of Protobuf"):
        return pa.schema(list(_struct(descriptor, read_options, {descriptor.full_name: 1}, [MAX_COLUMNS])))


def _struct(descriptor: Any, read_options: ProtobufReadOptions, depths: dict[str, int], left: list[int]) -> pa.DataType:
    left[0] -= len(descriptor.fields)
    if left[0] < 0:
        raise OptionError(f"the message {descriptor.full_name} makes more than {MAX_COLUMNS:,} columns")
    fields = []
    for field in descriptor.fields:
        type_ = _field(field, read_options, depths, left)
        if type_ is not None:
            fields.append(pa.field(field.name, type_))
    lower = [each.name.lower() for each in fields]
    if len(set(lower)) != len(lower):
        raise OptionError(f"the message {descriptor.full_name} has fields that differ in case only")
    return pa.struct(fields)


def _field(
    field: Any, read_options: ProtobufReadOptions, depths: dict[str, int], left: list[int]
) -> pa.DataType | None:
    if field.type == FieldType.GROUP:
        raise OptionError(f"{field.full_name} is a group, which kafkalog does not read")
    if is_map(field):
        key, value = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
        values = _single(value, read_options, depths, left)
        return None if values is None else pa.map_(scalar(key, read_options)[0], pa.field("value", values))
    type_ = _single(field, read_options, depths, left)
    return pa.list_(pa.field("element", type_)) if type_ is not None and is_repeated(field) else type_


def _single(
    field: Any, read_options: ProtobufReadOptions, depths: dict[str, int], left: list[int]
) -> pa.DataType | None:
    if field.type != FieldType.MESSAGE:
        return scalar(field, read_options)[0]
    descriptor = field.message_type
    if is_time(descriptor, "Timestamp"):
        if (descriptor.fields_by_name["seconds"].number, descriptor.fields_by_name["nanos"].number) != (1, 2):
            raise OptionError(f"{descriptor.full_name} is a Timestamp whose fields have other numbers than 1 and 2")
        return pa.timestamp("us", tz="UTC")
    if is_time(descriptor, "Duration"):
        return pa.duration("us")
    depth = depths.get(descriptor.full_name, 0)
    if depth and not 0 < read_options.recursion <= MOST_RECURSION:
        raise OptionError(
            f"{field.full_name} makes {descriptor.full_name} recursive, which Spark has no type for; "
            f"recursive.fields.max.depth=1 to {MOST_RECURSION} says how deep it is read"
        )
    if depth and depth >= read_options.recursion:
        return None
    struct = _struct(descriptor, read_options, {**depths, descriptor.full_name: depth + 1}, left)
    return struct if struct.num_fields else None


@lru_cache(1024)
def checks_utf8(field: Any) -> bool:
    """True if Java refuses a string that is not UTF-8, as it does in every map; elsewhere it replaces what is not."""
    if field.containing_type.GetOptions().map_entry:
        return True
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto()
    field.file.CopyToProto(file)
    return file.syntax in ("proto3", "editions") or bool(file.options.java_string_check_utf8)
