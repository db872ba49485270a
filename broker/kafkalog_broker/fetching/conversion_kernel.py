"""Records v2 found, and messages written in format v0 or v1: compiled. Importing this loads Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from kafkalog_broker.storage.append.kernel_fields import Message, Unit
from kafkalog_spark.format import layout
from kafkalog_spark.format.records import RecordFault
from kafkalog_spark.kernels.primitives import copy_bytes, crc_of, kernel_for, write_i32, write_i64
from kafkalog_spark.kernels.rows import record_fields

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_ROWS = types.Array(types.int64, 2, "C")
_CRC = types.Array(types.uint32, 2, "C")
_I64 = types.int64

_SMALLEST_V0, _SMALLEST_V1 = layout.LEGACY_MIN_SIZE
_KEY_AT_V0, _KEY_AT_V1 = layout.LEGACY_KEY_AT


@kernel_for(types.UniTuple(_I64, 2)(_BYTES, _ROWS, _I64, _ROWS))
def find_records(payload, units, from_offset, messages):  # type: ignore[no-untyped-def]
    """Fill `messages` with the records of some v2 batches from `from_offset` on, as many as it has rows. Returns (rows
    filled, 1 when a malformed record came after them)."""
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
            while payload[value_at - 1] & 0x80:  # what lies between key and value is the value's length
                value_at += 1
            message = messages[row]
            message[Message.OFFSET], message[Message.TIMESTAMP] = offset, timestamp
            message[Message.APPEND_TIME], message[Message.NUMBER] = append_time, number
            message[Message.KEY_AT], message[Message.KEY_SIZE] = key_at, key_size
            message[Message.VALUE_AT], message[Message.VALUE_SIZE] = value_at, value_size
            message[Message.END] = at
            row += 1
    return row, np.int64(0)


@kernel_for(_I64(_BYTES, _ROWS, _I64, _I64, _CRC, _OUT))
def write_messages(payload, messages, magic, base_offset, crc32_table, out):  # type: ignore[no-untyped-def]
    """Write messages of format `magic` to `out`, which has room for all, with offsets that count from `base_offset`;
    returns the bytes written."""
    at: Any = np.int64(0)
    for row in range(messages.shape[0]):
        message = messages[row]
        key_size, value_size = message[Message.KEY_SIZE], message[Message.VALUE_SIZE]
        fixed = np.int64(_SMALLEST_V1) if magic == 1 else np.int64(_SMALLEST_V0)
        size = fixed + max(key_size, np.int64(0)) + max(value_size, np.int64(0))
        write_i64(out, at, message[Message.OFFSET] - base_offset)
        write_i32(out, at + layout.LENGTH_AT, size - layout.LOG_OVERHEAD)
        out[at + layout.MAGIC_AT] = np.uint8(magic)
        out[at + layout.LEGACY_ATTRIBUTES_AT] = np.uint8(0)
        field = at + np.int64(_KEY_AT_V0)
        if magic == 1:
            if message[Message.APPEND_TIME] != 0:
                out[at + layout.LEGACY_ATTRIBUTES_AT] = np.uint8(layout.ATTRIBUTE_LOG_APPEND_TIME)
            write_i64(out, at + layout.LEGACY_TIMESTAMP_AT, message[Message.TIMESTAMP])
            field = at + np.int64(_KEY_AT_V1)
        write_i32(out, field, max(key_size, np.int64(-1)))
        field += 4
        if key_size > 0:
            copy_bytes(out, field, payload, message[Message.KEY_AT], key_size)
            field += key_size
        write_i32(out, field, max(value_size, np.int64(-1)))
        if value_size > 0:
            copy_bytes(out, field + 4, payload, message[Message.VALUE_AT], value_size)
        write_i32(out, at + layout.LEGACY_CRC_AT, crc_of(out, at + layout.MAGIC_AT, at + size, crc32_table))
        at += size
    return at
