"""Appending of Protobuf scalars and timestamps to columns in compiled code.

The functions share these arguments: `columns` int64[n, len(Col)], `column` the number of a column, `kind` the field's
Kind, `data` uint8[:] with the value at `at`, `plan` PlanArrays, `slot` a row of the plan's slots.
"""

from __future__ import annotations

import numpy as np

from kafkalog_spark.kernels.primitives import helper, load_f32, load_f64, load_i32, load_i64
from kafkalog_spark.typed.columns import column_builder_kernel as builder
from kafkalog_spark.typed.protobuf.plan import Kind, ProtobufFault, SlotCell
from kafkalog_spark.typed.protobuf.scan_kernel import symbol_of
from kafkalog_spark.typed.protobuf.wire import skip_value, uvarint

_MAX_MILLIS = (2**63 - 1) // 1000
_MINUS, _ZERO = ord("-"), ord("0")
_SECONDS_TAG, _NANOS_TAG = 1 << 3, 2 << 3  # fields 1 and 2 as varints


@helper
def put_varint(columns, column, kind, value, plan, slot, name_buffer):  # type: ignore[no-untyped-def]
    """Append the number of a varint; return whether it fits.

    name_buffer: uint8[MAX_ENUM_NAME], working memory for the name of an unknown number of an enum.
    """
    if kind == Kind.INT64:
        return builder.put_i64(columns, column, value)
    if kind in (Kind.INT32, Kind.ENUM_INT):
        return builder.put_i32(columns, column, np.int64(np.int32(value)))
    if kind == Kind.UINT32_WIDE:
        return builder.put_i64(columns, column, value & 0xFFFFFFFF)
    if kind == Kind.UINT64_WIDE:
        return builder.put_i128(columns, column, value, 0)
    if kind == Kind.SINT64:
        raw = np.uint64(value)
        return builder.put_i64(
            columns, column, np.int64((raw >> np.uint64(1)) ^ (~(raw & np.uint64(1)) + np.uint64(1)))
        )
    if kind == Kind.SINT32:
        raw32 = value & 0xFFFFFFFF
        return builder.put_i32(columns, column, np.int64(np.int32((raw32 >> 1) ^ -(raw32 & 1))))
    if kind == Kind.BOOL:
        return builder.put_bool(columns, column, value != 0)
    number = np.int64(np.int32(value))
    slots, tables, texts = plan.slots, plan.tables, plan.texts
    symbol = symbol_of(plan, slot, number)
    if symbol >= 0:
        return builder.put_bytes(columns, column, texts, tables[symbol + 1], tables[symbol + 2])
    size = slots[slot, SlotCell.UNKNOWN_PREFIX_SIZE]
    for i in range(size):
        name_buffer[i] = texts[slots[slot, SlotCell.UNKNOWN_PREFIX] + i]
    if number < 0:
        name_buffer[size] = _MINUS
        size += 1
        number = -number
    digits, rest = 1, number
    while rest >= 10:
        digits += 1
        rest //= 10
    for i in range(digits):
        name_buffer[size + digits - 1 - i] = _ZERO + number % 10
        number //= 10
    return builder.put_bytes(columns, column, name_buffer, 0, size + digits)


@helper
def put_fixed(columns, column, kind, data, at):  # type: ignore[no-untyped-def]
    """Append a number of four or eight bytes; return whether it fits."""
    if kind == Kind.DOUBLE:
        return builder.put_f64(columns, column, load_f64(data, at))
    if kind == Kind.FLOAT:
        return builder.put_f32(columns, column, load_f32(data, at))
    if kind == Kind.FIXED64:
        return builder.put_i64(columns, column, load_i64(data, at))
    return builder.put_i32(columns, column, load_i32(data, at))


@helper
def is_zero(data, at, end, kind):  # type: ignore[no-untyped-def]
    """Return whether data[at:end] is the zero of its type. In a field without presence it is the same as absence."""
    if kind <= Kind.ENUM_NAME:
        value, _ = uvarint(data, at, end)
        wide = kind in (Kind.INT64, Kind.UINT64_WIDE, Kind.SINT64, Kind.BOOL)
        return value == 0 if wide else value & 0xFFFFFFFF == 0
    if kind >= Kind.STRING:
        return at == end
    while at < end and data[at] == 0:
        at += 1
    return at == end


@helper
def microseconds_of(data, at, end):  # type: ignore[no-untyped-def]
    """Read a message of seconds (int64, field 1) and nanos (int32, field 2) -> (microseconds, 0 or a fault).

    Overflow and rounding are those of Spark.
    """
    seconds, nanos = np.int64(0), np.int64(0)
    while at < end:
        tag, at = uvarint(data, at, end)
        if at > end:
            return np.int64(0), np.int64(ProtobufFault.TRUNCATED)
        tag &= 0xFFFFFFFF
        if tag >> 3 == 0:
            return np.int64(0), np.int64(ProtobufFault.TAG)
        if tag in (_SECONDS_TAG, _NANOS_TAG):
            value, at = uvarint(data, at, end)
            if at > end:
                return np.int64(0), np.int64(ProtobufFault.TRUNCATED)
            if tag == _SECONDS_TAG:
                seconds = value
            else:
                nanos = np.int64(np.int32(value))
            continue
        after = skip_value(data, at, end, tag & 7, tag >> 3)
        if after < 0:
            return np.int64(0), -after
        at = after
    # Unsigned numbers wrap like Java's; the compiler assumes that signed ones do not overflow.
    millis = np.int64(np.uint64(seconds) * np.uint64(1000))
    if millis > _MAX_MILLIS or millis < -_MAX_MILLIS:
        return np.int64(0), np.int64(ProtobufFault.TIMESTAMP)
    micros = nanos // 1000
    if nanos < 0 and micros * 1000 != nanos:
        micros += 1
    return np.int64(np.uint64(millis) * np.uint64(1000) + np.uint64(micros)), np.int64(0)
