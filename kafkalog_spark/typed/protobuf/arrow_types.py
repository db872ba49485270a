"""Converts Protobuf fields to Arrow types, with the result of Spark's `protobuf.utils.SchemaConverters`."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.protobuf.field_types import FieldType, is_map, is_repeated, is_time
from kafkalog_spark.typed.protobuf.plan import Kind
from kafkalog_spark.typed.protobuf.read_options import MAX_RECURSION, ProtobufReadOptions
from kafkalog_spark.typed.schema_limits import MAX_COLUMNS, recursion_bounded


class ScalarType(NamedTuple):
    """Type of a field that is not a message: as an Arrow column, and for the kernel."""

    arrow_type: pa.DataType
    kind: Kind


_SCALARS = {
    FieldType.DOUBLE: ScalarType(pa.float64(), Kind.DOUBLE),
    FieldType.FLOAT: ScalarType(pa.float32(), Kind.FLOAT),
    FieldType.INT64: ScalarType(pa.int64(), Kind.INT64),
    FieldType.UINT64: ScalarType(pa.int64(), Kind.INT64),
    FieldType.INT32: ScalarType(pa.int32(), Kind.INT32),
    FieldType.FIXED64: ScalarType(pa.int64(), Kind.FIXED64),
    FieldType.FIXED32: ScalarType(pa.int32(), Kind.FIXED32),
    FieldType.BOOL: ScalarType(pa.bool_(), Kind.BOOL),
    FieldType.STRING: ScalarType(pa.string(), Kind.STRING),
    FieldType.BYTES: ScalarType(pa.binary(), Kind.BYTES),
    FieldType.UINT32: ScalarType(pa.int32(), Kind.INT32),
    FieldType.ENUM: ScalarType(pa.string(), Kind.ENUM_NAME),
    FieldType.SFIXED32: ScalarType(pa.int32(), Kind.FIXED32),
    FieldType.SFIXED64: ScalarType(pa.int64(), Kind.FIXED64),
    FieldType.SINT32: ScalarType(pa.int32(), Kind.SINT32),
    FieldType.SINT64: ScalarType(pa.int64(), Kind.SINT64),
}
_UPCAST = {
    FieldType.UINT32: ScalarType(pa.int64(), Kind.UINT32_WIDE),
    FieldType.UINT64: ScalarType(pa.decimal128(20, 0), Kind.UINT64_WIDE),
}
"""Types with option upcast.unsigned.ints. As in Spark, it does not affect fixed32 and fixed64."""


def columns_of(descriptor: Any, read_options: ProtobufReadOptions) -> pa.Schema:
    """Return the columns of a message.

    Args:
        descriptor: Descriptor of the message.
        read_options: Options that choose the types.

    Raises:
        OptionError: If Spark, or this reader, does not support a field.
    """
    with recursion_bounded("a schema of Protobuf"):
        return pa.schema(list(_Converter(read_options).struct(descriptor, {descriptor.full_name: 1})))


def scalar(field: Any, read_options: ProtobufReadOptions) -> ScalarType:
    """Return the type of a field that is not a message."""
    if field.type == FieldType.ENUM and read_options.enums_as_ints:
        return ScalarType(pa.int32(), Kind.ENUM_INT)
    if read_options.upcast_unsigned and field.type in _UPCAST:
        return _UPCAST[field.type]
    return _SCALARS[field.type]


class _Converter:
    """Converts one message. The result is None for a field that Spark leaves out.

    The parameter `depths` is the number of enclosing messages by full name.
    """

    def __init__(self, read_options: ProtobufReadOptions) -> None:
        self._read_options = read_options
        self._columns_left = MAX_COLUMNS

    def struct(self, descriptor: Any, depths: dict[str, int]) -> pa.DataType:
        self._columns_left -= len(descriptor.fields)
        if self._columns_left < 0:
            raise OptionError(f"the message {descriptor.full_name} has more than {MAX_COLUMNS:,} columns")
        fields = []
        for field in descriptor.fields:
            type_ = self._field(field, depths)
            if type_ is not None:
                fields.append(pa.field(field.name, type_))
        lower = [field.name.lower() for field in fields]
        if len(set(lower)) != len(lower):
            raise OptionError(f"the message {descriptor.full_name} has fields that differ in case only")
        return pa.struct(fields)

    def _field(self, field: Any, depths: dict[str, int]) -> pa.DataType | None:
        if field.type == FieldType.GROUP:
            raise OptionError(f"{field.full_name} is a group, which kafkalog does not read")
        if is_map(field):
            key, value = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
            values = self._element(value, depths)
            if values is None:
                return None
            return pa.map_(scalar(key, self._read_options).arrow_type, pa.field("value", values))
        type_ = self._element(field, depths)
        return pa.list_(pa.field("element", type_)) if type_ is not None and is_repeated(field) else type_

    def _element(self, field: Any, depths: dict[str, int]) -> pa.DataType | None:
        """Return the type of one value of a field, repeated or not."""
        if field.type != FieldType.MESSAGE:
            return scalar(field, self._read_options).arrow_type
        descriptor = field.message_type
        if is_time(descriptor, "Timestamp"):
            if (descriptor.fields_by_name["seconds"].number, descriptor.fields_by_name["nanos"].number) != (1, 2):
                raise OptionError(f"{descriptor.full_name} is a Timestamp whose fields have other numbers than 1 and 2")
            return pa.timestamp("us", tz="UTC")
        if is_time(descriptor, "Duration"):
            return pa.duration("us")
        depth, maximum = depths.get(descriptor.full_name, 0), self._read_options.max_depth
        if depth and not 0 < maximum <= MAX_RECURSION:
            raise OptionError(
                f"{field.full_name} makes {descriptor.full_name} recursive, which Spark has no type for; "
                f"recursive.fields.max.depth=1 to {MAX_RECURSION} limits how deep it is read"
            )
        if depth and depth >= maximum:
            return None
        struct = self.struct(descriptor, {**depths, descriptor.full_name: depth + 1})
        return struct if struct.num_fields else None
