"""Columns of plain types to Protobuf: which types of fields each may be written as, and what makes the bytes.

The types are those that reading gives a field (types.py), and others that hold the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.typed.pieces.entries import Entries
from kafkalog_spark.typed.pieces.numbers import fixed_width, sized, varints, whole_numbers, zigzags
from kafkalog_spark.typed.pieces.pieces import Part, Pieces
from kafkalog_spark.typed.pieces.texts import is_binary, is_text, well_formed
from kafkalog_spark.typed.protobuf.types import (
    BOOL,
    BYTES,
    DOUBLE,
    ENUM,
    FIXED32,
    FIXED64,
    FLOAT,
    INT32,
    INT64,
    SFIXED32,
    SFIXED64,
    SINT32,
    SINT64,
    STRING,
    UINT32,
    UINT64,
)

VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 0, 1, 2, 5
"""Wire types."""
_WIRE = {
    **dict.fromkeys((INT32, INT64, UINT32, UINT64, SINT32, SINT64, BOOL, ENUM), VARINT),
    **dict.fromkeys((FIXED64, SFIXED64, DOUBLE), EIGHT_BYTES),
    **dict.fromkeys((FIXED32, SFIXED32, FLOAT), FOUR_BYTES),
    **dict.fromkeys((STRING, BYTES), SIZED),
}
_UNSIGNED = (UINT32, UINT64, FIXED32, FIXED64)
_SHORT = (INT32, UINT32, SINT32, FIXED32, SFIXED32, ENUM)
_FLOATING = (FLOAT, DOUBLE)


class Scalars(NamedTuple):
    """What the entries of a column are. parts: of each entry, without its tag; any for null. zero: which are the zero
    of their type, bool[n], which proto3 leaves out."""

    parts: list[Part]
    zero: np.ndarray


Write = Callable[[Entries, Any, str], Scalars]
"""(entries, the field's descriptor, the place of the field). Raises InvalidRecord."""


def wire_type(field: Any) -> int:
    """How a field of no message is stored."""
    return _WIRE[field.type]


def scalar_writer(type_: pa.DataType, field: Any) -> Write | None:
    """What writes a column of that type into that field, which is no message; None where nothing does."""
    kind = field.type
    if kind in (STRING, BYTES):
        fits = is_text(type_) if kind == STRING else is_binary(type_)
        return _texts if fits else None
    if kind in _FLOATING:
        return _floats if pa.types.is_floating(type_) or pa.types.is_integer(type_) else None
    if kind == BOOL:
        return _booleans if pa.types.is_boolean(type_) else None
    if kind == ENUM and is_text(type_):
        return _names
    whole = pa.types.is_integer(type_) or (pa.types.is_decimal128(type_) and type_.scale == 0)
    return _numbers if whole else None


def _texts(entries: Entries, field: Any, path: str) -> Scalars:
    pieces = Pieces.of(well_formed(entries.array) if field.type == STRING else entries.array)
    return Scalars(sized(pieces, varints), pieces.sizes() == 0)


def _floats(entries: Entries, field: Any, path: str) -> Scalars:
    pieces = fixed_width(entries.array, "<f4" if field.type == FLOAT else "<f8")
    width = 4 if field.type == FLOAT else 8
    bits = pieces.data[: len(pieces) * width].reshape(-1, width)
    return Scalars([Part(pieces)], np.logical_not(bits.any(axis=1)))  # -0.0 is none


def _booleans(entries: Entries, field: Any, path: str) -> Scalars:
    pieces = fixed_width(entries.array, "u1")
    return Scalars([Part(pieces)], pieces.data[: len(pieces)] == 0)


def _names(entries: Entries, field: Any, path: str) -> Scalars:
    values = field.enum_type.values_by_name
    what = f"no name of the enum {field.enum_type.full_name}"
    places = entries.places(list(values), message_of(field), path, what)
    numbers = np.array([values[name].number for name in values], np.int64)[places]
    return Scalars([Part(varints(numbers))], numbers == 0)


def _numbers(entries: Entries, field: Any, path: str) -> Scalars:
    numbers = _in_range(entries, field, path)
    zero = numbers == 0
    if field.type in (SINT32, SINT64):
        return Scalars([Part(zigzags(numbers))], zero)
    if wire_type(field) == VARINT:
        return Scalars([Part(varints(numbers))], zero)
    stored = numbers.astype("<i4" if wire_type(field) == FOUR_BYTES else "<i8")  # the bits, also of an unsigned number
    return Scalars([Part(Pieces.of_rows(stored.view(np.uint8).reshape(len(stored), stored.itemsize)))], zero)


def _in_range(entries: Entries, field: Any, path: str) -> np.ndarray:
    """The numbers as 64 bits. A number below 0 of a column as wide as an unsigned field is its bits, as Spark reads and
    writes them."""
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
        if field.type == ENUM and field.enum_type.is_closed:
            known = np.array(list(field.enum_type.values_by_number), np.int64)
            entries.refuse(~np.isin(numbers, known), message_of(field), path, "no number of the enum")
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
