"""Encoders of plain Arrow types in Protobuf: which field types each may be written as, and its bytes.

The types are those that reading gives a field (types.py), and others that hold the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.typed.columns.byte_slices import (
    ByteSlices,
    Fragment,
)
from kafkalog_spark.typed.columns.entries import Entries
from kafkalog_spark.typed.columns.java_text import well_formed
from kafkalog_spark.typed.columns.number_slices import fixed_width, sized, varints, whole_numbers, zigzags
from kafkalog_spark.typed.columns.type_predicates import is_binary, is_text
from kafkalog_spark.typed.protobuf import types
from kafkalog_spark.typed.protobuf.types import FieldType

_UNSIGNED = (FieldType.UINT32, FieldType.UINT64, FieldType.FIXED32, FieldType.FIXED64)
_SHORT = (
    FieldType.INT32,
    FieldType.UINT32,
    FieldType.SINT32,
    FieldType.FIXED32,
    FieldType.SFIXED32,
    FieldType.ENUM,
)
_FLOATING = (FieldType.FLOAT, FieldType.DOUBLE)


class Scalars(NamedTuple):
    """Encoded entries of a column. parts: each entry without its tag; anything for null. zero: which are the zero
    of their type, bool[n], which proto3 leaves out."""

    parts: list[Fragment]
    zero: np.ndarray


Write = Callable[[Entries, Any, str], Scalars]
"""(entries, the field's descriptor, the place of the field). Raises InvalidRecord."""


def _scalar_writer(type_: pa.DataType, field: Any) -> Write | None:
    """Writer of a column of that type into that field, which is no message; None where there is none."""
    kind = field.type
    if kind in (FieldType.STRING, FieldType.BYTES):
        fits = is_text(type_) if kind == FieldType.STRING else is_binary(type_)
        return _texts if fits else None
    if kind in _FLOATING:
        return _fixed if pa.types.is_floating(type_) or pa.types.is_integer(type_) else None
    if kind == FieldType.BOOL:
        return _fixed if pa.types.is_boolean(type_) else None
    if kind == FieldType.ENUM and is_text(type_):
        return _names
    whole = pa.types.is_integer(type_) or (pa.types.is_decimal128(type_) and type_.scale == 0)
    return _numbers if whole else None


def _texts(entries: Entries, field: Any, path: str) -> Scalars:
    slices = ByteSlices.of(well_formed(entries.array) if field.type == FieldType.STRING else entries.array)
    return Scalars(sized(slices, varints), slices.sizes() == 0)


def _fixed(entries: Entries, field: Any, path: str) -> Scalars:
    width, dtype = {
        FieldType.BOOL: (1, "u1"),
        FieldType.FLOAT: (4, "<f4"),
        FieldType.DOUBLE: (8, "<f8"),
    }[field.type]
    slices = fixed_width(entries.array, dtype)
    bits = slices.data[: len(slices) * width].reshape(-1, width)
    return Scalars([Fragment(slices)], np.logical_not(bits.any(axis=1)))  # -0.0 is no zero


def _names(entries: Entries, field: Any, path: str) -> Scalars:
    values = field.enum_type.values_by_name
    what = f"no name of the enum {field.enum_type.full_name}"
    places = entries.indexes_of(list(values), message_of(field), path, what)
    numbers = np.array([values[name].number for name in values], np.int64)[places]
    return Scalars([Fragment(varints(numbers))], numbers == 0)


def _numbers(entries: Entries, field: Any, path: str) -> Scalars:
    numbers = _in_range(entries, field, path)
    zero = numbers == 0
    if field.type in (FieldType.SINT32, FieldType.SINT64):
        return Scalars([Fragment(zigzags(numbers))], zero)
    if types.wire_type(field) == types.VARINT:
        return Scalars([Fragment(varints(numbers))], zero)
    stored = numbers.astype(
        "<i4" if types.wire_type(field) == types.FOUR_BYTES else "<i8"
    )  # the bits, also of an unsigned number
    return Scalars([Fragment(ByteSlices.of_rows(stored.view(np.uint8).reshape(len(stored), stored.itemsize)))], zero)


def _in_range(entries: Entries, field: Any, path: str) -> np.ndarray:
    """The numbers as 64 bits; below 0, in a column as wide as an unsigned field, their bits, as Spark has them."""
    array = entries.array
    if pa.types.is_decimal128(array.type):
        array = _of_decimals(entries, field, path)
    numbers = whole_numbers(array)
    if field.type in _SHORT:
        unsigned = field.type in _UNSIGNED
        low = -(2**31) if not unsigned or array.type.bit_width <= 32 else 0
        high = 2**32 if unsigned else 2**31
        entries.refuse((numbers < low) | (numbers >= high), message_of(field), path, "a number beyond 32 bits")
        if unsigned:
            return numbers & 0xFFFF_FFFF
        if field.type == FieldType.ENUM and field.enum_type.is_closed:
            values = np.array(list(field.enum_type.values_by_number), np.int64)
            entries.refuse(~np.isin(numbers, values), message_of(field), path, "no number of the enum")
    return numbers


def _of_decimals(entries: Entries, field: Any, path: str) -> pa.Array:
    unsigned = field.type in _UNSIGNED
    bound = pa.scalar(2**64 if unsigned else 2**63, pa.decimal128(38, 0))
    low = pa.scalar(0 if unsigned else -(2**63), pa.decimal128(38, 0))
    wide = entries.array.cast(pa.decimal128(38, 0))
    wrong = pc.or_(pc.less(wide, low), pc.greater_equal(wide, bound))
    wrong = pc.fill_null(wrong, False).to_numpy(zero_copy_only=False)
    entries.refuse(wrong, message_of(field), path, "a number beyond 64 bits")
    kept = pc.if_else(pa.array(wrong), None, wide)  # what is not written may be anything
    return kept.cast(pa.uint64() if unsigned else pa.int64()).view(pa.int64())


def message_of(field: Any) -> str:
    """The message that a field is of, for errors."""
    return str(field.containing_type.full_name)
