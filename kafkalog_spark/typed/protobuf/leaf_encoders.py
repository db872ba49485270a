"""Encoders of Arrow types without children as Protobuf scalars.

A column can be written to a field if it has the type that a read of the field returns (types.py), or another type for
the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.typed.columns.byte_slices import ByteSlices, Fragment
from kafkalog_spark.typed.columns.entries import Entries
from kafkalog_spark.typed.columns.enum_indexes import enum_indexes
from kafkalog_spark.typed.columns.java_text import well_formed
from kafkalog_spark.typed.columns.number_slices import fixed_width, length_prefixed, varints, whole_numbers, zigzags
from kafkalog_spark.typed.columns.type_predicates import is_binary, is_text
from kafkalog_spark.typed.protobuf import field_types
from kafkalog_spark.typed.protobuf.field_types import FieldType

_UNSIGNED_TYPES = (FieldType.UINT32, FieldType.UINT64, FieldType.FIXED32, FieldType.FIXED64)
_32_BIT_TYPES = (
    FieldType.INT32,
    FieldType.UINT32,
    FieldType.SINT32,
    FieldType.FIXED32,
    FieldType.SFIXED32,
    FieldType.ENUM,
)
_FLOATING_TYPES = (FieldType.FLOAT, FieldType.DOUBLE)


class Scalars(NamedTuple):
    """Encoded entries of a column."""

    parts: list[Fragment]  # each entry without its tag; arbitrary for null
    is_zero: np.ndarray  # bool[n], which entries are the zero of their type, which proto3 omits


ScalarWriter = Callable[[Entries, Any, str], Scalars]
"""Function (entries, field descriptor, path of the field) that encodes the entries. Raises InvalidRecord for an entry
that the field cannot represent."""


def scalar_writer(type_: pa.DataType, field: Any) -> ScalarWriter | None:
    """Return the writer of a column into a scalar field; None if the field cannot represent the type.

    Args:
        type_: Type of the column.
        field: Descriptor of the field.
    """
    kind = field.type
    if kind in (FieldType.STRING, FieldType.BYTES):
        fits = is_text(type_) if kind == FieldType.STRING else is_binary(type_)
        return _encode_bytes if fits else None
    if kind in _FLOATING_TYPES:
        return _encode_fixed_width if pa.types.is_floating(type_) or pa.types.is_integer(type_) else None
    if kind == FieldType.BOOL:
        return _encode_fixed_width if pa.types.is_boolean(type_) else None
    if kind == FieldType.ENUM and is_text(type_):
        return _encode_enum_names
    is_whole = pa.types.is_integer(type_) or (pa.types.is_decimal128(type_) and type_.scale == 0)
    return _encode_integers if is_whole else None


def message_name(field: Any) -> str:
    """Return the full name of the message with the field, for errors."""
    return str(field.containing_type.full_name)


def _encode_bytes(entries: Entries, field: Any, path: str) -> Scalars:
    slices = ByteSlices.of(well_formed(entries.array) if field.type == FieldType.STRING else entries.array)
    return Scalars(length_prefixed(slices, varints), slices.sizes() == 0)


def _encode_fixed_width(entries: Entries, field: Any, path: str) -> Scalars:
    width, dtype = {
        FieldType.BOOL: (1, "u1"),
        FieldType.FLOAT: (4, "<f4"),
        FieldType.DOUBLE: (8, "<f8"),
    }[field.type]
    slices = fixed_width(entries.array, dtype)
    bits = slices.data[: len(slices) * width].reshape(-1, width)
    return Scalars([Fragment(slices)], np.logical_not(bits.any(axis=1)))  # -0.0 is not the zero that is omitted


def _encode_enum_names(entries: Entries, field: Any, path: str) -> Scalars:
    values = field.enum_type.values_by_name
    what = f"not a name of the enum {field.enum_type.full_name}"
    indexes = enum_indexes(entries, list(values), message_name(field), path, what)
    numbers = np.array([values[name].number for name in values], np.int64)[indexes]
    return Scalars([Fragment(varints(numbers))], numbers == 0)


def _encode_integers(entries: Entries, field: Any, path: str) -> Scalars:
    numbers = _integers_in_range(entries, field, path)
    is_zero = numbers == 0
    if field.type in (FieldType.SINT32, FieldType.SINT64):
        return Scalars([Fragment(zigzags(numbers))], is_zero)
    if field_types.wire_type(field) == field_types.WireType.VARINT:
        return Scalars([Fragment(varints(numbers))], is_zero)
    dtype = "<i4" if field_types.wire_type(field) == field_types.WireType.I32 else "<i8"
    stored = numbers.astype(dtype)  # keeps the bits of unsigned numbers
    return Scalars([Fragment(ByteSlices.of_rows(stored.view(np.uint8).reshape(len(stored), stored.itemsize)))], is_zero)


def _integers_in_range(entries: Entries, field: Any, path: str) -> np.ndarray:
    """Return the numbers as int64[n]. Raises InvalidRecord for a number out of the field's range.

    If a column is as wide as an unsigned field, its numbers are the field's bits, as in Spark: a negative number stands
    for a large one.
    """
    array = entries.array
    if pa.types.is_decimal128(array.type):
        array = _integers_of_decimals(entries, field, path)
    numbers = whole_numbers(array)
    if field.type in _32_BIT_TYPES:
        unsigned = field.type in _UNSIGNED_TYPES
        low = -(2**31) if not unsigned or array.type.bit_width <= 32 else 0
        high = 2**32 if unsigned else 2**31
        entries.refuse_where((numbers < low) | (numbers >= high), message_name(field), path, "a number beyond 32 bits")
        if unsigned:
            return numbers & 0xFFFF_FFFF
        if field.type == FieldType.ENUM and field.enum_type.is_closed:
            values = np.array(list(field.enum_type.values_by_number), np.int64)
            entries.refuse_where(~np.isin(numbers, values), message_name(field), path, "not a number of the enum")
    return numbers


def _integers_of_decimals(entries: Entries, field: Any, path: str) -> pa.Array:
    """Return decimals as an int64 array of the field's 64 bits. Raises InvalidRecord for a number out of range."""
    unsigned = field.type in _UNSIGNED_TYPES
    bound = pa.scalar(2**64 if unsigned else 2**63, pa.decimal128(38, 0))
    low = pa.scalar(0 if unsigned else -(2**63), pa.decimal128(38, 0))
    wide = entries.array.cast(pa.decimal128(38, 0))
    wrong = pc.or_(pc.less(wide, low), pc.greater_equal(wide, bound))
    wrong = pc.fill_null(wrong, False).to_numpy(zero_copy_only=False)
    entries.refuse_where(wrong, message_name(field), path, "a number beyond 64 bits")
    kept = pc.if_else(pa.array(wrong), None, wide)  # entries that are not written may be out of range
    return kept.cast(pa.uint64() if unsigned else pa.int64()).view(pa.int64())
