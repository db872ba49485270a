"""Batches v2 made messages v0 and v1, and messages v1 made messages v0: compiled. Importing this loads Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from kafkalog_broker.fetching.conversion_fields import ConversionRule, ConversionStatus, Cursor, Unit
from kafkalog_spark.format import layout
from kafkalog_spark.format.records import RecordFault
from kafkalog_spark.kernels.primitives import copy_bytes, crc_of, kernel_for, read_i32, read_i64, write_i32, write_i64
from kafkalog_spark.kernels.rows import record_fields

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_NUMBERS = types.Array(types.int64, 1, "C")
_ROWS = types.Array(types.int64, 2, "C")
_CRC = types.Array(types.uint32, 2, "C")
_I64 = types.int64

_SMALLEST_V0, _SMALLEST_V1 = layout.LEGACY_MIN_SIZE
_KEY_AT_V0, _KEY_AT_V1 = layout.LEGACY_KEY_AT


@njit
def _written(  # type: ignore[no-untyped-def]
    payload, key_at, key_size, value_at, value_size, offset, timestamp, append_time, wanted, cursor, crc32_table, out
):
    """Append one message to `out`; False when there is no room for it."""
    magic = wanted[ConversionRule.MAGIC]
    fixed = np.int64(_SMALLEST_V1) if magic == 1 else np.int64(_SMALLEST_V0)
    size = fixed + max(key_size, np.int64(0)) + max(value_size, np.int64(0))
    at = cursor[Cursor.FILLED]
    if at + size > wanted[ConversionRule.ROOM]:
        cursor[Cursor.NEEDED] = size
        return False
    if cursor[Cursor.COUNT] == 0:
        cursor[Cursor.FIRST_OFFSET] = offset
        cursor[Cursor.LARGEST_TIMESTAMP] = layout.NO_TIMESTAMP
    write_i64(out, at, offset - cursor[Cursor.FIRST_OFFSET] if wanted[ConversionRule.RELATIVE] != 0 else offset)
    write_i32(out, at + layout.LENGTH_AT, size - layout.LOG_OVERHEAD)
    out[at + layout.MAGIC_AT] = np.uint8(magic)
    out[at + layout.LEGACY_ATTRIBUTES_AT] = np.uint8(0)
    field = at + np.int64(_KEY_AT_V0)
    if magic == 1:
        if append_time != 0:
            out[at + layout.LEGACY_ATTRIBUTES_AT] = np.uint8(layout.ATTRIBUTE_LOG_APPEND_TIME)
        write_i64(out, at + layout.LEGACY_TIMESTAMP_AT, timestamp)
        field = at + np.int64(_KEY_AT_V1)
    write_i32(out, field, max(key_size, np.int64(-1)))
    field += 4
    if key_size > 0:
        copy_bytes(out, field, payload, key_at, key_size)
        field += key_size
    write_i32(out, field, max(value_size, np.int64(-1)))
    if value_size > 0:
        copy_bytes(out, field + 4, payload, value_at, value_size)
    write_i32(out, at + layout.LEGACY_CRC_AT, crc_of(out, at + layout.MAGIC_AT, at + size, crc32_table))
    cursor[Cursor.FILLED] = at + size
    cursor[Cursor.COUNT] += 1
    cursor[Cursor.LAST_OFFSET] = offset
    cursor[Cursor.LARGEST_TIMESTAMP] = max(cursor[Cursor.LARGEST_TIMESTAMP], timestamp)
    return True


@kernel_for(_I64(_BYTES, _ROWS, _NUMBERS, _NUMBERS, _CRC, _OUT))
def from_records(payload, units, wanted, cursor, crc32_table, out):  # type: ignore[no-untyped-def]
    """Append the records of some v2 batches to `out` as messages, from where `cursor` stands; returns an
    ConversionStatus.

    units, wanted, cursor: see U, W, C. Headers are left out. `out` has wanted[ROOM] bytes at least.
    """
    for unit in range(cursor[Cursor.UNIT], units.shape[0]):
        at: Any = units[unit, Unit.START]
        index: Any = np.int64(0)
        if cursor[Cursor.AT] >= 0:
            at, index = cursor[Cursor.AT], cursor[Cursor.RECORD]
        end, append_time = units[unit, Unit.END], units[unit, Unit.APPEND_TIME]
        while index < units[unit, Unit.COUNT]:
            fault, record_end, timestamp_delta, delta, key_at, key_size, value_size = record_fields(payload, at, end)
            if fault != RecordFault.NONE:
                cursor[Cursor.UNIT], cursor[Cursor.AT], cursor[Cursor.RECORD] = unit, at, index
                return np.int64(ConversionStatus.MALFORMED)
            offset = units[unit, Unit.BASE_OFFSET] + delta
            if offset >= wanted[ConversionRule.FROM_OFFSET]:
                timestamp = units[unit, Unit.TIMESTAMP]
                if append_time == 0:
                    timestamp = units[unit, Unit.BASE_TIMESTAMP] + timestamp_delta
                # what lies between key and value is the value's length
                length: Any = np.int64(1)
                while payload[key_at + max(key_size, np.int64(0)) + length - 1] & 0x80:
                    length += 1
                value_at = key_at + max(key_size, np.int64(0)) + length
                if not _written(
                    payload, key_at, key_size, value_at, value_size, offset, timestamp, append_time, wanted, cursor,
                    crc32_table, out,
                ):  # fmt: skip
                    cursor[Cursor.UNIT], cursor[Cursor.AT], cursor[Cursor.RECORD] = unit, at, index
                    return np.int64(ConversionStatus.FULL)
            at = record_end
            index += 1
        cursor[Cursor.AT] = -1
    cursor[Cursor.UNIT], cursor[Cursor.AT] = units.shape[0], -1
    return np.int64(ConversionStatus.DONE)


@kernel_for(_I64(_BYTES, _ROWS, _NUMBERS, _NUMBERS, _CRC, _OUT))
def from_messages(payload, units, wanted, cursor, crc32_table, out):  # type: ignore[no-untyped-def]
    """As from_records, of plain messages v1 (units: one or several, one after the other), which become messages v0.
    CRCs are the caller's matter."""
    for unit in range(cursor[Cursor.UNIT], units.shape[0]):
        at: Any = units[unit, Unit.START]
        if cursor[Cursor.AT] >= 0:
            at = cursor[Cursor.AT]
        end = units[unit, Unit.END]
        while at < end:
            malformed = end - at < _SMALLEST_V1
            size: Any = np.int64(0)
            if not malformed:
                size = read_i32(payload, at + layout.LENGTH_AT) + layout.LOG_OVERHEAD
                malformed = size < _SMALLEST_V1 or size > end - at
            key_at = at + np.int64(_KEY_AT_V1) + 4
            key_size: Any = np.int64(-1)
            value_at: Any = np.int64(0)
            value_size: Any = np.int64(-1)
            if not malformed:
                key_size = read_i32(payload, key_at - 4)
                malformed = key_size > at + size - key_at - 4
            if not malformed:
                value_at = key_at + max(key_size, np.int64(0)) + 4
                value_size = read_i32(payload, value_at - 4)
                malformed = value_size > at + size - value_at
            if malformed:
                cursor[Cursor.UNIT], cursor[Cursor.AT] = unit, at
                return np.int64(ConversionStatus.MALFORMED)
            offset = read_i64(payload, at) + units[unit, Unit.BASE_OFFSET]
            if offset >= wanted[ConversionRule.FROM_OFFSET] and not _written(
                payload, key_at, key_size, value_at, value_size, offset, np.int64(layout.NO_TIMESTAMP), np.int64(0),
                wanted, cursor, crc32_table, out,
            ):  # fmt: skip
                cursor[Cursor.UNIT], cursor[Cursor.AT] = unit, at
                return np.int64(ConversionStatus.FULL)
            at += size
        cursor[Cursor.AT] = -1
    cursor[Cursor.UNIT], cursor[Cursor.AT] = units.shape[0], -1
    return np.int64(ConversionStatus.DONE)
