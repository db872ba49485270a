"""Values of single fields of Protobuf to columns: numbers, names of enums, texts, defaults, timestamps."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.kernels.primitives import helper, load_f32, load_f64, load_i32, load_i64
from kafkalog_spark.typed.columns import column_builder_kernel as builder
from kafkalog_spark.typed.protobuf.plan import Kind, ProtobufFault, Slot
from kafkalog_spark.typed.protobuf.wire import pass_over, symbol_of, uvarint

_MOST_MILLIS = (2**63 - 1) // 1000
_MINUS, _ZERO = ord("-"), ord("0")
LONGEST_NAME = 512
"""Room for the name of an unknown number of an enum."""


@helper
def put_varint(columns, c, kind, value, plan, s, name):  # type: ignore[no-untyped-def]
    """Put a number that was a varint; returns whether it fitted. name: room for an unknown enum's name."""
    if kind == Kind.INT64:
        return builder.put_i64(columns, c, value)
    if kind in (Kind.INT32, Kind.ENUM_INT):
        return builder.put_i32(columns, c, np.int64(np.int32(value)))
    if kind == Kind.UINT32_WIDE:
        return builder.put_i64(columns, c, value & 0xFFFFFFFF)
    if kind == Kind.UINT64_WIDE:
        return builder.put_i128(columns, c, value, 0)
    if kind == Kind.SINT64:
        raw = np.uint64(value)
        return builder.put_i64(columns, c, np.int64((raw >> np.uint64(1)) ^ (~(raw & np.uint64(1)) + np.uint64(1))))
    if kind == Kind.SINT32:
        raw32 = value & 0xFFFFFFFF
        return builder.put_i32(columns, c, np.int64(np.int32((raw32 >> 1) ^ -(raw32 & 1))))
    if kind == Kind.BOOL:
        return builder.put_bool(columns, c, value != 0)
    number = np.int64(np.int32(value))
    slots, tables, texts = plan.slots, plan.tables, plan.texts
    symbol = symbol_of(plan, s, number)
    if symbol >= 0:
        return builder.put_bytes(columns, c, texts, tables[symbol + 1], tables[symbol + 2])
    size = slots[s, Slot.UNKNOWN_SIZE]
    for i in range(size):
        name[i] = texts[slots[s, Slot.UNKNOWN] + i]
    if number < 0:
        name[size] = _MINUS
        size += 1
        number = -number
    digits, rest = 1, number
    while rest >= 10:
        digits += 1
        rest //= 10
    for i in range(digits):
        name[size + digits - 1 - i] = _ZERO + number % 10
        number //= 10
    return builder.put_bytes(columns, c, name, 0, size + digits)


@helper
def put_fixed(columns, c, kind, data, at):  # type: ignore[no-untyped-def]
    """Put a number of four or eight bytes; returns whether it fitted."""
    if kind == Kind.DOUBLE:
        return builder.put_f64(columns, c, load_f64(data, at))
    if kind == Kind.FLOAT:
        return builder.put_f32(columns, c, load_f32(data, at))
    if kind == Kind.FIXED64:
        return builder.put_i64(columns, c, load_i64(data, at))
    return builder.put_i32(columns, c, load_i32(data, at))


@helper
def put_default(columns, c, kind, plan, s):  # type: ignore[no-untyped-def]
    """Put a field's default; returns whether it fitted."""
    slots, texts = plan.slots, plan.texts
    value = slots[s, Slot.DEFAULT]
    if kind in (Kind.STRING, Kind.BYTES, Kind.ENUM_NAME):
        return builder.put_bytes(columns, c, texts, value, slots[s, Slot.DEFAULT_SIZE])
    if kind == Kind.DOUBLE:
        return builder.put_f64(columns, c, load_f64(texts, value))
    if kind == Kind.FLOAT:
        return builder.put_f32(columns, c, np.float32(load_f64(texts, value)))
    if kind == Kind.BOOL:
        return builder.put_bool(columns, c, value)
    if kind in (Kind.INT32, Kind.SINT32, Kind.FIXED32, Kind.ENUM_INT):
        return builder.put_i32(columns, c, value)
    if kind == Kind.UINT64_WIDE:
        return builder.put_i128(columns, c, value, 0)
    return builder.put_i64(columns, c, value)


@helper
def is_zero(data, at, end, kind):  # type: ignore[no-untyped-def]
    """True if a value is its type's zero, which a field without presence may as well leave out."""
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
def put_value(columns, c, kind, data, at, end, plan, s, name):  # type: ignore[no-untyped-def]
    """Put a scalar whose bytes are data[at:end]; returns whether it fitted."""
    if kind <= Kind.ENUM_NAME:
        value, _ = uvarint(data, at, end)
        return put_varint(columns, c, kind, value, plan, s, name)
    if kind <= Kind.DOUBLE:
        return put_fixed(columns, c, kind, data, at)
    return builder.put_bytes(columns, c, data, at, end - at)


@helper
def micros(data, at, end):  # type: ignore[no-untyped-def]
    """A message of seconds (int64, field 1) and nanos (int32, field 2) -> (microseconds, 0 or a fault), as Spark adds
    them up."""
    seconds, nanos = np.int64(0), np.int64(0)
    while at < end:
        tag, at = uvarint(data, at, end)
        if at > end:
            return np.int64(0), np.int64(ProtobufFault.TRUNCATED)
        tag &= 0xFFFFFFFF
        if tag >> 3 == 0:
            return np.int64(0), np.int64(ProtobufFault.TAG)
        if tag == 8 or tag == 16:
            value, at = uvarint(data, at, end)
            if at > end:
                return np.int64(0), np.int64(ProtobufFault.TRUNCATED)
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
        return np.int64(0), np.int64(ProtobufFault.TIMESTAMP)
    micros = nanos // 1000
    if nanos < 0 and micros * 1000 != nanos:
        micros += 1
    return np.int64(np.uint64(millis) * np.uint64(1000) + np.uint64(micros)), np.int64(0)
