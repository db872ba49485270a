"""Converts numbers to byte slices: varints, length prefixes, numbers of fixed width, decimals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.typed.columns.byte_slices import ByteSlices, Fragment
from kafkalog_spark.typed.columns.byte_slices_kernel import plain_varints, zigzag_varints

_MAX_VARINT_BYTES = 10  # of 64 bits


def whole_numbers(array: pa.Array) -> np.ndarray:
    """Return integers, dates in days, or timestamps in their unit as int64[n]; 0 for null."""
    if not pa.types.is_integer(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    numbers: np.ndarray = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(numbers, np.int64)


def zigzags(values: np.ndarray) -> ByteSlices:
    """Return int64[n] as zigzag varints: Avro's int and long, Protobuf's sint32 and sint64."""
    return _varints(values, zigzag_varints)


def varints(values: np.ndarray) -> ByteSlices:
    """Return the 64 bits of int64[n] as varints: Protobuf's int64, uint64, bool and enum."""
    return _varints(values, plain_varints)


def length_prefixed(slices: ByteSlices, encode_lengths: Callable[[np.ndarray], ByteSlices]) -> list[Fragment]:
    """Return each slice with its length before it.

    Args:
        slices: n slices.
        encode_lengths: Function that encodes lengths, int64[n]: `zigzags` or `varints`.
    """
    return [Fragment(encode_lengths(slices.sizes())), Fragment(slices)]


def fixed_width(array: pa.Array, dtype: str) -> ByteSlices:
    """Return numbers or booleans as the bytes of a NumPy dtype, such as "<f8"; zeros for null."""
    values = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):  # a double out of the range of float becomes infinite, as in Java's cast
        values = np.ascontiguousarray(values.astype(dtype))
    return ByteSlices.of_rows(values.view(np.uint8).reshape(len(values), values.dtype.itemsize))


def unscaled_bytes(array: pa.Array) -> np.ndarray:
    """Return the unscaled values of decimals as big-endian two's complement, uint8[n, 16]; arbitrary for null."""
    data = array.buffers()[1]
    rows = np.frombuffer(data, np.uint8, len(array) * 16, array.offset * 16).reshape(len(array), 16)
    return rows[:, ::-1]


def shortest_unscaled(rows: np.ndarray) -> ByteSlices:
    """Return big-endian two's complement numbers, uint8[n, 16], without redundant sign bytes.

    Matches `BigInteger.toByteArray`.
    """
    width = rows.shape[1]
    sign_bytes = (rows[:, :1] >> 7) * np.uint8(255)
    differing_bits = rows ^ sign_bytes
    first = np.where(differing_bits.any(axis=1), (differing_bits != 0).argmax(axis=1), width - 1)
    has_other_sign = np.take_along_axis(differing_bits, first[:, None], axis=1)[:, 0] >> 7
    first = first - has_other_sign  # if the highest bit is not the sign, keep one sign byte
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(width - first, out=offsets[1:])
    return ByteSlices(np.ascontiguousarray(rows[np.arange(width) >= first[:, None]]), offsets)


def _varints(values: np.ndarray, write: Callable[..., Any]) -> ByteSlices:
    data = np.empty(max(len(values) * _MAX_VARINT_BYTES, 1), np.uint8)
    result = ByteSlices(data, np.empty(len(values) + 1, np.int64))
    write(values, result.data, result.offsets)
    return result
