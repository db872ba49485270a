"""Columns of plain types to Avro: which type of Avro each may be written as, and what makes the bytes.

The pairs are those of Spark's `AvroSerializer`, and what loses nothing: whole numbers as wider ones, where they fit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed.avro.schema import AvroType
from kafkalog_spark.typed.avro.types import MAX_PRECISION, MILLIS
from kafkalog_spark.typed.pieces.entries import Entries
from kafkalog_spark.typed.pieces.numbers import (
    fixed_width,
    shortest_unscaled,
    sized,
    unscaled_bytes,
    whole_numbers,
    zigzags,
)
from kafkalog_spark.typed.pieces.pieces import Part, Pieces
from kafkalog_spark.typed.pieces.texts import is_binary, is_text

Leaf = Callable[[Entries, AvroType, str], list[Part]]
"""(entries, the type, the place of the field) to what each entry is; any for null. Raises InvalidRecord."""
AVRO = "the Avro schema"
_INT32 = 2**31
_UNSCALED_BYTES = 16


def leaf_writer(type_: pa.DataType, avro: AvroType, exact: bool) -> Leaf | None:
    """What writes a column of that type as that type; None where nothing does. exact: no other type fits as well, so a
    union has no better branch."""
    for is_type, kinds, writer, widens in _PAIRS:
        if is_type(type_) and avro.kind in kinds and not (exact and widens(type_, avro)):
            return None if writer is _decimal and not _is_decimal(avro) else writer
    return None


def _is_decimal(avro: AvroType) -> bool:
    return avro.logical == "decimal" and avro.precision <= MAX_PRECISION


def _boolean(entries: Entries, avro: AvroType, path: str) -> list[Part]:
    return [Part(fixed_width(entries.array, "u1"))]


def _whole(entries: Entries, avro: AvroType, path: str) -> list[Part]:
    numbers = whole_numbers(entries.array)
    if avro.kind == "int":
        wrong = (numbers < -_INT32) | (numbers >= _INT32)
        entries.refuse(wrong, AVRO, path, "a number beyond 32 bits, and the schema has an int")
    return [Part(zigzags(numbers))]


def _floating(entries: Entries, avro: AvroType, path: str) -> list[Part]:
    return [Part(fixed_width(entries.array, "<f4" if avro.kind == "float" else "<f8"))]


def _bytes(entries: Entries, avro: AvroType, path: str) -> list[Part]:
    pieces = Pieces.of(entries.array)
    if avro.kind != "fixed":
        return sized(pieces, zigzags)
    wrong = pieces.sizes() != avro.size
    entries.refuse(wrong, AVRO, path, f"not the {avro.size} bytes of a fixed")
    return [Part(pieces)]


def _symbol(entries: Entries, avro: AvroType, path: str) -> list[Part]:
    return [Part(zigzags(entries.places(avro.symbols, AVRO, path, f"none of the symbols of {avro.name}")))]


def _timestamp(entries: Entries, avro: AvroType, path: str) -> list[Part]:
    """Microseconds in the unit of the schema; without a logical type milliseconds, as Spark has them."""
    us = whole_numbers(entries.array)
    if avro.logical in (None, *MILLIS):
        return [Part(zigzags(us // 1000))]
    if avro.logical in ("timestamp-nanos", "local-timestamp-nanos"):
        most = np.iinfo(np.int64).max // 1000
        entries.refuse((us < -most) | (us > most), AVRO, path, "a time beyond 64 bits of nanoseconds")
        return [Part(zigzags(us * 1000))]
    return [Part(zigzags(us))]


def _decimal(entries: Entries, avro: AvroType, path: str) -> list[Part]:
    given = entries.array
    try:
        array = given.cast(pa.decimal128(avro.precision, avro.scale))
    except pa.ArrowInvalid:
        entries.refuse(~_fit(given, avro), AVRO, path, f"more than decimal({avro.precision}, {avro.scale}) holds")
        raise
    rows = unscaled_bytes(array)
    if avro.kind == "bytes":
        return sized(shortest_unscaled(rows), zigzags)
    if avro.size <= _UNSCALED_BYTES:
        return [Part(Pieces.of_rows(rows[:, _UNSCALED_BYTES - avro.size :]))]
    sign = np.repeat((rows[:, :1] >> 7) * np.uint8(255), avro.size - _UNSCALED_BYTES, axis=1)
    return [Part(Pieces.of_rows(np.hstack([sign, rows])))]


def _fit(array: pa.Array, avro: AvroType) -> np.ndarray:
    """Which decimals can be cast, one by one: only where some cannot."""
    fits = np.ones(len(array), np.bool_)
    for i in range(len(array)):
        try:
            array[i : i + 1].cast(pa.decimal128(avro.precision, avro.scale))
        except pa.ArrowInvalid:
            fits[i] = False
    return fits


def _is_small(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) and type_.bit_width <= 32)


def _other_width(type_: pa.DataType, avro: AvroType) -> bool:
    return (avro.kind == "int") != _is_small(type_)


def _other_floats(type_: pa.DataType, avro: AvroType) -> bool:
    return (avro.kind == "float") != bool(pa.types.is_float32(type_))


def _never(type_: pa.DataType, avro: AvroType) -> bool:
    return False


def _always(type_: pa.DataType, avro: AvroType) -> bool:
    return True


def _no_decimal(type_: pa.DataType, avro: AvroType) -> bool:
    return bool((avro.precision, avro.scale) != (type_.precision, type_.scale))


_PAIRS: tuple[
    tuple[Callable[[pa.DataType], bool], tuple[str, ...], Leaf, Callable[[pa.DataType, AvroType], bool]], ...
] = (
    (pa.types.is_boolean, ("boolean",), _boolean, _never),
    (pa.types.is_integer, ("int", "long"), _whole, _other_width),
    (pa.types.is_integer, ("float", "double"), _floating, _always),
    (pa.types.is_floating, ("float", "double"), _floating, _other_floats),
    (is_text, ("string",), _bytes, _never),
    (is_text, ("enum",), _symbol, _never),
    (is_binary, ("bytes", "fixed"), _bytes, _never),
    (pa.types.is_date32, ("int",), _whole, _never),
    (pa.types.is_timestamp, ("long",), _timestamp, _never),
    (pa.types.is_decimal, ("bytes", "fixed"), _decimal, _no_decimal),
)
"""Type of a column, kinds of Avro, what writes them, and whether another kind would fit better."""
