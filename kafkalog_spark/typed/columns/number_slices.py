"""ByteSlices of numbers in binary: varints, length prefixes, numbers of fixed width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.typed.columns.byte_slices import ByteSlices, Fragment
from kafkalog_spark.typed.columns.byte_slices_kernel import plain_varints, zigzag_varints

_MOST_BYTES = 10  # bytes of the longest varint of 64 bits


def whole_numbers(array: pa.Array) -> np.ndarray:
    """Whole numbers, dates (days) and timestamps (their units) of an array as int64[n]; 0 for null."""
    if not pa.types.is_integer(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    numbers: np.ndarray = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(numbers, np.int64)


def zigzags(values: np.ndarray) -> ByteSlices:
    """int64[n] as zigzag varints: Avro's int and long, Protobuf's sint32 and sint64."""
    return _varints(values, zigzag_varints)


def varints(values: np.ndarray) -> ByteSlices:
    """The 64 bits of int64[n] as varints: Protobuf's int64, uint64, bool and enum."""
    return _varints(values, plain_varints)


def _varints(values: np.ndarray, write: Callable[..., Any]) -> ByteSlices:
    made = ByteSlices(np.empty(max(len(values) * _MOST_BYTES, 1), np.uint8), np.empty(len(values) + 1, np.int64))
    write(values, made.data, made.offsets)
    return made


def sized(slices: ByteSlices, length: Callable[[np.ndarray], ByteSlices]) -> list[Fragment]:
    """ByteSlices after their lengths, which `length` writes: zigzags or varints."""
    return [Fragment(length(slices.sizes())), Fragment(slices)]


def fixed_width(array: pa.Array, dtype: str) -> ByteSlices:
    """Numbers and booleans as the bytes of a numpy dtype, such as "<f8"."""
    values = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):  # a double beyond all floats is infinite, as in Java's cast
        values = np.ascontiguousarray(values.astype(dtype))
    return ByteSlices.of_rows(values.view(np.uint8).reshape(len(values), values.dtype.itemsize))


def unscaled_bytes(array: pa.Array) -> np.ndarray:
    """The unscaled numbers of decimals as two's complement, the highest byte first: uint8[n, 16]; any for null."""
    held = array.buffers()[1]
    rows = np.frombuffer(held, np.uint8, len(array) * 16, array.offset * 16).reshape(len(array), 16)
    return rows[:, ::-1]


def shortest_unscaled(rows: np.ndarray) -> ByteSlices:
    """Each number of uint8[n, 16] in as few bytes as keep its sign (BigInteger.toByteArray)."""
    width = rows.shape[1]
    negative = rows[:, :1] >> 7
    differs = rows ^ (negative * np.uint8(255))
    first = np.where(differs.any(axis=1), (differs != 0).argmax(axis=1), width - 1)
    taken = np.take_along_axis(differs, first[:, None], axis=1)[:, 0] >> 7  # the sign would be lost: one byte more
    first = first - taken
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(width - first, out=offsets[1:])
    return ByteSlices(np.ascontiguousarray(rows[np.arange(width) >= first[:, None]]), offsets)
