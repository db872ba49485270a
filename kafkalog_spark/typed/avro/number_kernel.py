"""Numbers of Avro to columns: ints and longs as what their type makes of them, decimals from their bytes."""

from __future__ import annotations

import numpy as np
from numba import njit

from kafkalog_spark.typed.avro.program import As, Fault
from kafkalog_spark.typed.columns.column_builder_kernel import put_f32, put_f64, put_i32, put_i64, put_i128

GOOD, FULL = 0, -1
"""What putting gives besides a fault: it is done; a column is full."""
_I32, _I64, _F32, _F64, _F32_AS_F64, _MILLIS = (int(one) for one in As)
_DECIMAL, _TIMESTAMP = int(Fault.DECIMAL), int(Fault.TIMESTAMP)

_MOST_MILLIS = (2**63 - 1) // 1000
_POWERS = np.array([10**i for i in range(19)], np.int64)
_POWERS_LOW = np.array([10**i & (2**64 - 1) for i in range(39)], np.uint64)
_POWERS_HIGH = np.array([10**i >> 64 for i in range(39)], np.uint64)


@njit
def keep_number(columns, c, value, kept):  # type: ignore[no-untyped-def]
    """An int64 into a column: 0, a fault, or -1 when the column is full."""
    if kept == _MILLIS:
        if value > _MOST_MILLIS or value < -_MOST_MILLIS:
            return _TIMESTAMP
        value *= 1000
    if c < 0:
        return GOOD
    if kept == _I32:
        fits = put_i32(columns, c, value)
    elif kept in (_I64, _MILLIS):
        fits = put_i64(columns, c, value)
    elif kept == _F32:
        fits = put_f32(columns, c, np.float32(value))
    elif kept == _F64:
        fits = put_f64(columns, c, np.float64(value))
    else:
        fits = put_f64(columns, c, np.float64(np.float32(value)))
    return GOOD if fits else FULL


@njit
def keep_decimal(columns, c, data, at, size, precision):  # type: ignore[no-untyped-def]
    """A big-endian two's complement number: 0, a fault, or -1 when the column is full. As Spark: up to 18 digits only
    the low 64 bits count; with more, all do."""
    if size == 0:
        return _DECIMAL
    filler = np.uint64(0xFFFFFFFFFFFFFFFF) if data[at] & np.uint8(0x80) else np.uint64(0)
    low, high = filler, filler
    for i in range(max(at, at + size - 16), at + size):
        high = (high << np.uint64(8)) | (low >> np.uint64(56))
        low = (low << np.uint64(8)) | np.uint64(data[i])
    if precision <= 18:
        value = np.int64(low)
        if value <= -_POWERS[precision] or value >= _POWERS[precision]:
            return _DECIMAL
        if c >= 0 and not put_i128(columns, c, value, value >> 63):
            return FULL
        return GOOD
    for i in range(at, at + size - 16):
        if np.uint64(data[i]) != filler & np.uint64(0xFF):
            return _DECIMAL
    negative = filler != np.uint64(0)
    if (np.int64(high) < 0) != negative:  # its sign does not fit into 128 bits
        return _DECIMAL
    of_low, of_high = low, high
    if negative:
        of_low = ~low + np.uint64(1)
        of_high = ~high + (np.uint64(1) if of_low == np.uint64(0) else np.uint64(0))
    if of_high > _POWERS_HIGH[precision] or (of_high == _POWERS_HIGH[precision] and of_low >= _POWERS_LOW[precision]):
        return _DECIMAL
    if c >= 0 and not put_i128(columns, c, np.int64(low), np.int64(high)):
        return FULL
    return GOOD
