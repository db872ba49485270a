"""Kernels that convert messages of format v0 and v1 to v2 records, and back. Loads Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from kafkalog_broker.storage.append.message_layouts import MessageColumn, SetFault, Unit
from kafkalog_spark.format import layout
from kafkalog_spark.format.records import RecordFault
from kafkalog_spark.kernels.encode import varint_size, write_varint
from kafkalog_spark.kernels.primitives import (
    copy_bytes,
    crc_of,
    helper,
    kernel_for,
    read_i32,
    read_i64,
    read_u32,
    write_i32,
    write_i64,
)
from kafkalog_spark.kernels.record_fields import record_fields

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_ROWS = types.Array(types.int64, 2, "C")
_TABLE = types.Array(types.uint32, 2, "C")
_I64 = types.int64

_SMALLEST_V0, _SMALLEST_V1 = layout.LEGACY_MIN_SIZE
_KEY_LENGTH_AT_V0, _KEY_LENGTH_AT_V1 = layout.LEGACY_KEY_LENGTH_AT
_NEWEST_MAGIC = 2


@helper
def _checked(payload, at, end, magic, max_message_bytes, allows_append_time, crc32_table):  # type: ignore[no-untyped-def]
    """Check the message at payload[at:end]. Returns (SetFault, size); without a fault, size 0 means that it is cut."""
    nothing = np.int64(0)
    if end - at < layout.LOG_OVERHEAD:
        return np.int64(SetFault.NONE), nothing
    size = read_i32(payload, at + layout.LENGTH_AT) + layout.LOG_OVERHEAD
    if size < layout.LOG_OVERHEAD:
        return np.int64(SetFault.NEGATIVE_SIZE), nothing
    if size < _SMALLEST_V0:
        return np.int64(SetFault.SMALL_SIZE), nothing
    if end - at <= layout.MAGIC_AT:
        return np.int64(SetFault.NONE), nothing
    message_magic = np.int64(payload[at + layout.MAGIC_AT])
    if message_magic > _NEWEST_MAGIC:
        return np.int64(SetFault.UNKNOWN_MAGIC), nothing
    if size > end - at:
        return np.int64(SetFault.NONE), nothing
    if size > max_message_bytes:
        return np.int64(SetFault.TOO_LARGE), nothing
    if message_magic != magic:
        return np.int64(SetFault.OTHER_MAGIC), nothing
    if crc32_table.size != 0:
        crc = read_u32(payload, at + layout.LEGACY_CRC_AT)
        if crc_of(payload, at + layout.MAGIC_AT, at + size, crc32_table) != crc:
            return np.int64(SetFault.CRC), nothing
    attributes = payload[at + layout.LEGACY_ATTRIBUTES_AT]
    if attributes & layout.ATTRIBUTE_CODEC:
        return np.int64(SetFault.COMPRESSED), nothing
    if magic == 1 and size < _SMALLEST_V1:
        return np.int64(SetFault.FIELDS), nothing
    if magic == 1 and allows_append_time == 0 and attributes & layout.ATTRIBUTE_LOG_APPEND_TIME:
        return np.int64(SetFault.APPEND_TIME_SET), nothing
    return np.int64(SetFault.NONE), size


@kernel_for(types.UniTuple(_I64, 2)(_BYTES, _I64, _I64, _I64, _I64, _I64, _I64, _I64, _TABLE, _ROWS))
def find_messages(  # type: ignore[no-untyped-def]
    payload, start, end, magic, add, from_offset, max_message_bytes, allows_append_time, crc32_table, messages
):
    """Fill `messages` with the messages of format `magic` in payload[start:end] from offset `from_offset` on.

    Returns (number of rows filled, SetFault of the message after them; TOO_MANY if `messages` has no more rows). A
    message that is cut short at the end is ignored, and so are bytes after the value of a message. add: added to each
    offset. max_message_bytes: largest allowed size of a message. allows_append_time: 1 if messages may have the
    timestamp type LogAppendTime. crc32_table: empty to leave CRCs unchecked.
    """
    key_field = np.int64(_KEY_LENGTH_AT_V1) if magic == 1 else np.int64(_KEY_LENGTH_AT_V0)
    at: Any = np.int64(start)
    row: Any = np.int64(0)
    while True:
        fault, size = _checked(payload, at, end, magic, max_message_bytes, allows_append_time, crc32_table)
        if fault != SetFault.NONE or size == 0:
            return row, fault
        key_at, message_end = at + key_field + 4, at + size
        key_size = read_i32(payload, key_at - 4)
        if key_size > message_end - key_at - 4:
            return row, np.int64(SetFault.FIELDS)
        value_at = key_at + max(key_size, np.int64(0)) + 4
        value_size = read_i32(payload, value_at - 4)
        if value_size > message_end - value_at:
            return row, np.int64(SetFault.FIELDS)
        offset = read_i64(payload, at) + add
        if offset >= from_offset:
            if row == messages.shape[0]:
                return row, np.int64(SetFault.TOO_MANY)
            message = messages[row]
            message[MessageColumn.OFFSET], message[MessageColumn.TIMESTAMP] = offset, layout.NO_TIMESTAMP
            if magic == 1:
                message[MessageColumn.TIMESTAMP] = read_i64(payload, at + layout.LEGACY_TIMESTAMP_AT)
            message[MessageColumn.APPEND_TIME], message[MessageColumn.NUMBER] = 0, 0
            message[MessageColumn.KEY_AT], message[MessageColumn.KEY_SIZE] = key_at, key_size
            message[MessageColumn.VALUE_AT], message[MessageColumn.VALUE_SIZE] = value_at, value_size
            message[MessageColumn.END] = message_end
            row += 1
        at = message_end


@kernel_for(types.UniTuple(_I64, 3)(_BYTES, _ROWS, _OUT))
def write_records(payload, messages, out):  # type: ignore[no-untyped-def]
    """Write messages to `out` as records with offset deltas 0, 1, 2 ... and timestamps relative to the first one.

    Returns (number of bytes written, smallest timestamp, largest timestamp). `out` is as large as the messages, because
    no record is larger than its message.
    """
    filled: Any = np.int64(0)
    base: Any = np.int64(layout.NO_TIMESTAMP)
    low: Any = base
    high: Any = base
    for row in range(messages.shape[0]):
        message = messages[row]
        timestamp = message[MessageColumn.TIMESTAMP]
        if row == 0:
            base, low, high = timestamp, timestamp, timestamp
        low, high = min(low, timestamp), max(high, timestamp)
        number, delta = np.int64(row), timestamp - base
        key_size, value_size = (
            max(message[MessageColumn.KEY_SIZE], np.int64(-1)),
            max(message[MessageColumn.VALUE_SIZE], np.int64(-1)),
        )
        body = np.int64(2) + varint_size(delta) + varint_size(number) + varint_size(key_size)
        body += max(key_size, np.int64(0)) + varint_size(value_size) + max(value_size, np.int64(0))
        filled = write_varint(out, filled, body)
        out[filled] = 0  # attributes
        filled = write_varint(out, filled + 1, delta)
        filled = write_varint(out, filled, number)
        filled = write_varint(out, filled, key_size)
        if key_size > 0:
            copy_bytes(out, filled, payload, message[MessageColumn.KEY_AT], key_size)
            filled += key_size
        filled = write_varint(out, filled, value_size)
        if value_size > 0:
            copy_bytes(out, filled, payload, message[MessageColumn.VALUE_AT], value_size)
            filled += value_size
        out[filled] = 0  # headers
        filled += 1
    return filled, low, high


@kernel_for(types.UniTuple(_I64, 2)(_BYTES, _ROWS, _I64, _ROWS))
def find_records(payload, units, from_offset, messages):  # type: ignore[no-untyped-def]
    """Fill `messages` with the records of v2 batches (see Unit) from offset `from_offset` on, as far as it has rows.

    Returns (number of rows filled, 1 if a malformed record follows them).
    """
    row: Any = np.int64(0)
    for unit in range(units.shape[0]):
        at, end = units[unit, Unit.START], units[unit, Unit.END]
        append_time = units[unit, Unit.APPEND_TIME]
        for number in range(units[unit, Unit.COUNT]):
            if row == messages.shape[0]:
                return row, np.int64(0)
            fault, at, timestamp_delta, delta, key_at, key_size, value_size = record_fields(payload, at, end)
            if fault != RecordFault.NONE:
                return row, np.int64(1)
            offset = units[unit, Unit.BASE_OFFSET] + delta
            if offset < from_offset:
                continue
            timestamp = units[unit, Unit.TIMESTAMP]
            if append_time == 0:
                timestamp = units[unit, Unit.BASE_TIMESTAMP] + timestamp_delta
            value_at = key_at + max(key_size, np.int64(0)) + 1
            while payload[value_at - 1] & 0x80:  # skips the varint of the value's length
                value_at += 1
            message = messages[row]
            message[MessageColumn.OFFSET], message[MessageColumn.TIMESTAMP] = offset, timestamp
            message[MessageColumn.APPEND_TIME], message[MessageColumn.NUMBER] = append_time, number
            message[MessageColumn.KEY_AT], message[MessageColumn.KEY_SIZE] = key_at, key_size
            message[MessageColumn.VALUE_AT], message[MessageColumn.VALUE_SIZE] = value_at, value_size
            message[MessageColumn.END] = at
            row += 1
    return row, np.int64(0)


@kernel_for(_I64(_BYTES, _ROWS, _I64, _I64, _TABLE, _OUT))
def write_messages(payload, messages, magic, base_offset, crc32_table, out):  # type: ignore[no-untyped-def]
    """Write messages of format `magic` to `out`, with offsets relative to `base_offset`. Returns their size."""
    at: Any = np.int64(0)
    for row in range(messages.shape[0]):
        message = messages[row]
        key_size, value_size = message[MessageColumn.KEY_SIZE], message[MessageColumn.VALUE_SIZE]
        fixed = np.int64(_SMALLEST_V1) if magic == 1 else np.int64(_SMALLEST_V0)
        size = fixed + max(key_size, np.int64(0)) + max(value_size, np.int64(0))
        write_i64(out, at, message[MessageColumn.OFFSET] - base_offset)
        write_i32(out, at + layout.LENGTH_AT, size - layout.LOG_OVERHEAD)
        out[at + layout.MAGIC_AT] = np.uint8(magic)
        out[at + layout.LEGACY_ATTRIBUTES_AT] = np.uint8(0)
        field = at + np.int64(_KEY_LENGTH_AT_V0)
        if magic == 1:
            if message[MessageColumn.APPEND_TIME] != 0:
                out[at + layout.LEGACY_ATTRIBUTES_AT] = np.uint8(layout.ATTRIBUTE_LOG_APPEND_TIME)
            write_i64(out, at + layout.LEGACY_TIMESTAMP_AT, message[MessageColumn.TIMESTAMP])
            field = at + np.int64(_KEY_LENGTH_AT_V1)
        write_i32(out, field, max(key_size, np.int64(-1)))
        field += 4
        if key_size > 0:
            copy_bytes(out, field, payload, message[MessageColumn.KEY_AT], key_size)
            field += key_size
        write_i32(out, field, max(value_size, np.int64(-1)))
        if value_size > 0:
            copy_bytes(out, field + 4, payload, message[MessageColumn.VALUE_AT], value_size)
        write_i32(out, at + layout.LEGACY_CRC_AT, crc_of(out, at + layout.MAGIC_AT, at + size, crc32_table))
        at += size
    return at
