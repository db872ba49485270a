"""Numbers of Avro to columns: ints and longs as what their type makes of them, decimals from their bytes."""

from __future__ import annotations

import numpy as np
from numba import njit

from kafkalog_spark.typed.avro.program import As, Fault
from kafkalog_spark.typed.columns.column_builder_kernel import full, put_f32, put_f64, put_i32, put_i64, put_i128

_MOST_MILLIS = (2**63 - 1) // 1000
_POWERS = np.array([10**i for i in range(19)], np.int64)
_POWERS_LOW = np.array([10**i & (2**64 - 1) for i in range(39)], np.uint64)
_POWERS_HIGH = np.array([10**i >> 64 for i in range(39)], np.uint64)


@njit
def keep_number(columns, c, value, kept):  # type: ignore[no-untyped-def]
    """Put an int64 into column c (below 0: into none) as `kept` (As) says; returns the result."""
    if kept == As.MILLIS:
        if value > _MOST_MILLIS or value < -_MOST_MILLIS:
            return Fault.TIMESTAMP
        value *= 1000
    if c < 0:
        return Fault.NONE
    if kept == As.I32:
        fits = put_i32(columns, c, value)
    elif kept in (As.I64, As.MILLIS):
        fits = put_i64(columns, c, value)
    elif kept == As.F32:
        fits = put_f32(columns, c, np.float32(value))
    elif kept == As.F64:
        fits = put_f64(columns, c, np.float64(value))
    else:
        fits = put_f64(columns, c, np.float64(np.float32(value)))
    return Fault.NONE if fits else full(c)


@njit
def keep_decimal(columns, c, data, at, size, precision):  # type: ignore[no-untyped-def]
    """Put the big-endian two's complement number data[at:at + size] into a column; returns the result.

    As Spark: up to 18 digits only the low 64 bits count; with more, all do.
    """
    if size == 0:
        return Fault.DECIMAL
    filler = np.uint64(0xFFFFFFFFFFFFFFFF) if data[at] & np.uint8(0x80) else np.uint64(0)
    low, high = filler, filler
    for i in range(max(at, at + size - 16), at + size):
        high = (high << np.uint64(8)) | (low >> np.uint64(56))
        low = (low << np.uint64(8)) | np.uint64(data[i])
    if precision <= 18:
        value = np.int64(low)
        if value <= -_POWERS[precision] or value >= _POWERS[precision]:
            return Fault.DECIMAL
        if c >= 0 and not put_i128(columns, c, value, value >> 63):
            return full(c)
        return Fault.NONE
    for i in range(at, at + size - 16):
        if np.uint64(data[i]) != filler & np.uint64(0xFF):
            return Fault.DECIMAL
    negative = filler != np.uint64(0)
    if (np.int64(high) < 0) != negative:  # its sign does not fit into 128 bits
        return Fault.DECIMAL
    of_low, of_high = low, high
    if negative:
        of_low = ~low + np.uint64(1)
        of_high = ~high + (np.uint64(1) if of_low == np.uint64(0) else np.uint64(0))
    if of_high > _POWERS_HIGH[precision] or (of_high == _POWERS_HIGH[precision] and of_low >= _POWERS_LOW[precision]):
        return Fault.DECIMAL
    if c >= 0 and not put_i128(columns, c, np.int64(low), np.int64(high)):
        return full(c)
    return Fault.NONE
