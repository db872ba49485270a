"""Values of single fields of Protobuf to columns: numbers, names of enums, texts, defaults, timestamps."""

from __future__ import annotations

import numpy as np
from numba import njit

from kafkalog_spark.typed.columns.column_builder_kernel import (
    load_f32,
    load_f64,
    load_i32,
    load_i64,
    put_bool,
    put_bytes,
    put_f32,
    put_f64,
    put_i32,
    put_i64,
    put_i128,
)
from kafkalog_spark.typed.protobuf.plan import Fault, Kind, S
from kafkalog_spark.typed.protobuf.wire import pass_over, symbol_of, uvarint

(
    _INT32, _INT64, _UINT32_WIDE, _UINT64_WIDE, _SINT32, _SINT64, _BOOL, _ENUM_INT, _ENUM_NAME, _FIXED32, _FIXED32_WIDE,
    _FLOAT, _FIXED64, _FIXED64_WIDE, _DOUBLE, _STRING, _BYTES, _MESSAGE, _TIMESTAMP,
) = (int(kind) for kind in Kind)  # fmt: skip
_DEFAULT, _DEFAULT_SIZE, _UNKNOWN, _UNKNOWN_SIZE = (
    int(S.DEFAULT), int(S.DEFAULT_SIZE), int(S.UNKNOWN), int(S.UNKNOWN_SIZE),
)  # fmt: skip
_FAR_TIME, _TRUNCATED, _TAG = int(Fault.TIMESTAMP), int(Fault.TRUNCATED), int(Fault.TAG)
_MOST_MILLIS = (2**63 - 1) // 1000
LONGEST_NAME = 512
"""Room for the name of an unknown number of an enum."""


@njit
def put_varint(columns, c, kind, value, slots, s, tables, texts, room):  # type: ignore[no-untyped-def]
    """A number that was a varint; whether it fitted."""
    if kind == _INT64:
        return put_i64(columns, c, value)
    if kind in (_INT32, _ENUM_INT):
        return put_i32(columns, c, np.int64(np.int32(value)))
    if kind == _UINT32_WIDE:
        return put_i64(columns, c, value & 0xFFFFFFFF)
    if kind == _UINT64_WIDE:
        return put_i128(columns, c, value, 0)
    if kind == _SINT64:
        raw = np.uint64(value)
        return put_i64(columns, c, np.int64((raw >> np.uint64(1)) ^ (~(raw & np.uint64(1)) + np.uint64(1))))
    if kind == _SINT32:
        raw32 = value & 0xFFFFFFFF
        return put_i32(columns, c, np.int64(np.int32((raw32 >> 1) ^ -(raw32 & 1))))
    if kind == _BOOL:
        return put_bool(columns, c, value != 0)
    number = np.int64(np.int32(value))
    found = symbol_of(tables, slots, s, number)
    if found >= 0:
        return put_bytes(columns, c, texts, tables[found + 1], tables[found + 2])
    size = slots[s, _UNKNOWN_SIZE]
    for i in range(size):
        room[i] = texts[slots[s, _UNKNOWN] + i]
    if number < 0:
        room[size] = 45  # -
        size += 1
        number = -number
    digits, rest = 1, number
    while rest >= 10:
        digits += 1
        rest //= 10
    for i in range(digits):
        room[size + digits - 1 - i] = 48 + number % 10
        number //= 10
    return put_bytes(columns, c, room, 0, size + digits)


@njit
def put_fixed(columns, c, kind, data, at):  # type: ignore[no-untyped-def]
    """A number of four or eight bytes; whether it fitted."""
    if kind == _DOUBLE:
        return put_f64(columns, c, load_f64(data, at))
    if kind == _FLOAT:
        return put_f32(columns, c, load_f32(data, at))
    if kind == _FIXED64:
        return put_i64(columns, c, load_i64(data, at))
    if kind == _FIXED64_WIDE:
        return put_i128(columns, c, load_i64(data, at), 0)
    if kind == _FIXED32:
        return put_i32(columns, c, load_i32(data, at))
    return put_i64(columns, c, np.int64(load_i32(data, at)) & 0xFFFFFFFF)


@njit
def put_default(columns, c, kind, slots, s, texts):  # type: ignore[no-untyped-def]
    """A field's default; whether it fitted."""
    value = slots[s, _DEFAULT]
    if kind in (_STRING, _BYTES, _ENUM_NAME):
        return put_bytes(columns, c, texts, value, slots[s, _DEFAULT_SIZE])
    if kind == _DOUBLE:
        return put_f64(columns, c, load_f64(texts, value))
    if kind == _FLOAT:
        return put_f32(columns, c, np.float32(load_f64(texts, value)))
    if kind == _BOOL:
        return put_bool(columns, c, value)
    if kind in (_INT32, _SINT32, _FIXED32, _ENUM_INT):
        return put_i32(columns, c, value)
    if kind in (_UINT64_WIDE, _FIXED64_WIDE):
        return put_i128(columns, c, value, 0)
    return put_i64(columns, c, value)


@njit
def is_zero(data, at, end, kind):  # type: ignore[no-untyped-def]
    """Whether a value is its type's zero, which a field without presence may as well leave out."""
    if kind <= _ENUM_NAME:
        value, _ = uvarint(data, at, end)
        wide = kind in (_INT64, _UINT64_WIDE, _SINT64, _BOOL)
        return value == 0 if wide else value & 0xFFFFFFFF == 0
    if kind >= _STRING:
        return at == end
    while at < end and data[at] == 0:
        at += 1
    return at == end


@njit
def put_value(columns, c, kind, data, at, end, slots, s, tables, texts, room):  # type: ignore[no-untyped-def]
    """A scalar whose bytes are data[at:end]; whether it fitted."""
    if kind <= _ENUM_NAME:
        value, _ = uvarint(data, at, end)
        return put_varint(columns, c, kind, value, slots, s, tables, texts, room)
    if kind <= _DOUBLE:
        return put_fixed(columns, c, kind, data, at)
    return put_bytes(columns, c, data, at, end - at)


@njit
def micros(data, at, end):  # type: ignore[no-untyped-def]
    """A message of seconds (int64, field 1) and nanos (int32, field 2) -> (microseconds, 0 or a fault), as Spark adds
    them up."""
    seconds, nanos = np.int64(0), np.int64(0)
    while at < end:
        tag, at = uvarint(data, at, end)
        if at > end:
            return np.int64(0), np.int64(_TRUNCATED)
        tag &= 0xFFFFFFFF
        if tag >> 3 == 0:
            return np.int64(0), np.int64(_TAG)
        if tag == 8 or tag == 16:
            value, at = uvarint(data, at, end)
            if at > end:
                return np.int64(0), np.int64(_TRUNCATED)
            if tag == 8:
                seconds = value
            else:
                nanos = np.int64(np.int32(value))
            continue
        after = pass_over(data, at, end, tag & 7, tag >> 3)
        if after < 0:
            return np.int64(0), -after
        at = after
    # in unsigned numbers, which wrap as Java's do: of signed ones the compiler believes that they do not
    millis = np.int64(np.uint64(seconds) * np.uint64(1000))
    if millis > _MOST_MILLIS or millis < -_MOST_MILLIS:
        return np.int64(0), np.int64(_FAR_TIME)
    micros = nanos // 1000
    if nanos < 0 and micros * 1000 != nanos:
        micros += 1
    return np.int64(np.uint64(millis) * np.uint64(1000) + np.uint64(micros)), np.int64(0)
