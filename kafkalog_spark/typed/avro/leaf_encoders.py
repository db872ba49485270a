"""Encoders of Arrow types without children as Avro.

Spark's `AvroSerializer` writes the same pairs of types. A few more pairs without loss are allowed, such as an integer
as a wider type.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed.avro.schema import AvroType
from kafkalog_spark.typed.avro.types import MILLIS
from kafkalog_spark.typed.columns.byte_slices import ByteSlices, Fragment
from kafkalog_spark.typed.columns.entries import Entries
from kafkalog_spark.typed.columns.enum_indexes import enum_indexes
from kafkalog_spark.typed.columns.number_slices import (
    fixed_width,
    length_prefixed,
    shortest_unscaled,
    unscaled_bytes,
    whole_numbers,
    zigzags,
)
from kafkalog_spark.typed.columns.type_predicates import is_binary, is_text

LeafEncoder = Callable[[Entries, AvroType, str], list[Fragment]]
"""Function (entries, Avro type, path of the field) that returns the encoding of each entry, arbitrary for null. Raises
InvalidRecord for an entry that the Avro type cannot represent."""
FieldWriter = Callable[[Entries], list[Fragment]]
"""Function that returns the encoding of each entry of one field. Raises InvalidRecord."""
TARGET = "the Avro schema"  # in errors: "row 1 does not fit the Avro schema"
_INT32 = 2**31
_UNSCALED_BYTES = 16


def _encode_fixed_width(entries: Entries, avro: AvroType, path: str) -> list[Fragment]:
    dtype = {"boolean": "u1", "float": "<f4", "double": "<f8"}[avro.kind]
    return [Fragment(fixed_width(entries.array, dtype))]


def _encode_integers(entries: Entries, avro: AvroType, path: str) -> list[Fragment]:
    numbers = whole_numbers(entries.array)
    if avro.kind == "int":
        wrong = (numbers < -_INT32) | (numbers >= _INT32)
        entries.refuse_where(wrong, TARGET, path, "a number beyond 32 bits, and the schema has an int")
    return [Fragment(zigzags(numbers))]


def _encode_bytes(entries: Entries, avro: AvroType, path: str) -> list[Fragment]:
    slices = ByteSlices.of(entries.array)
    if avro.kind != "fixed":
        return length_prefixed(slices, zigzags)
    wrong = slices.sizes() != avro.size
    entries.refuse_where(wrong, TARGET, path, f"not the {avro.size} bytes of a fixed")
    return [Fragment(slices)]


def _encode_symbols(entries: Entries, avro: AvroType, path: str) -> list[Fragment]:
    return [Fragment(zigzags(enum_indexes(entries, avro.symbols, TARGET, path, f"not a symbol of {avro.name}")))]


def _encode_timestamps(entries: Entries, avro: AvroType, path: str) -> list[Fragment]:
    """Encode microseconds in the unit of the schema. A schema without a logical type has milliseconds, as in Spark."""
    us = whole_numbers(entries.array)
    if avro.logical in (None, *MILLIS):
        return [Fragment(zigzags(us // 1000))]
    if avro.logical in ("timestamp-nanos", "local-timestamp-nanos"):
        limit = np.iinfo(np.int64).max // 1000
        entries.refuse_where((us < -limit) | (us > limit), TARGET, path, "a time beyond 64 bits of nanoseconds")
        return [Fragment(zigzags(us * 1000))]
    return [Fragment(zigzags(us))]


def encode_decimals(entries: Entries, avro: AvroType, path: str) -> list[Fragment]:
    decimals = entries.array
    try:
        array = decimals.cast(pa.decimal128(avro.precision, avro.scale))
    except pa.ArrowInvalid:
        entries.refuse_where(
            ~_which_fit(decimals, avro), TARGET, path, f"more than decimal({avro.precision}, {avro.scale}) holds"
        )
        raise
    rows = unscaled_bytes(array)
    if avro.kind == "bytes":
        return length_prefixed(shortest_unscaled(rows), zigzags)
    if avro.size <= _UNSCALED_BYTES:
        return [Fragment(ByteSlices.of_rows(rows[:, _UNSCALED_BYTES - avro.size :]))]
    sign = np.repeat((rows[:, :1] >> 7) * np.uint8(255), avro.size - _UNSCALED_BYTES, axis=1)
    return [Fragment(ByteSlices.of_rows(np.hstack([sign, rows])))]


def _which_fit(array: pa.Array, avro: AvroType) -> np.ndarray:
    """Return which decimals fit the Avro type, bool[n]. Slow, because it casts them one by one."""
    fits = np.ones(len(array), np.bool_)
    for i in range(len(array)):
        try:
            array[i : i + 1].cast(pa.decimal128(avro.precision, avro.scale))
        except pa.ArrowInvalid:
            fits[i] = False
    return fits


LEAF_ENCODERS: tuple[tuple[Callable[[pa.DataType], bool], tuple[str, ...], LeafEncoder], ...] = (
    (pa.types.is_boolean, ("boolean",), _encode_fixed_width),
    (pa.types.is_integer, ("int", "long"), _encode_integers),
    (pa.types.is_integer, ("float", "double"), _encode_fixed_width),
    (pa.types.is_floating, ("float", "double"), _encode_fixed_width),
    (is_text, ("string",), _encode_bytes),
    (is_text, ("enum",), _encode_symbols),
    (is_binary, ("bytes", "fixed"), _encode_bytes),
    (pa.types.is_date32, ("int",), _encode_integers),
    (pa.types.is_timestamp, ("long",), _encode_timestamps),
    (pa.types.is_decimal, ("bytes", "fixed"), encode_decimals),
)
"""(predicate of the Arrow type, kinds of Avro types that it can be written as, encoder)"""


def other_fits_better(type_: pa.DataType, avro: AvroType) -> bool:
    """Return whether another Avro type is closer to an Arrow type: for int64, long is closer than int or double."""
    if pa.types.is_integer(type_):
        return avro.kind != ("int" if type_.bit_width <= 32 else "long")
    if pa.types.is_floating(type_):
        return avro.kind != ("float" if pa.types.is_float32(type_) else "double")
    return pa.types.is_decimal(type_) and (avro.precision, avro.scale) != (type_.precision, type_.scale)
