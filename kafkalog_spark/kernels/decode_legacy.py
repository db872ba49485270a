"""Decode messages v0 and v1 into Arrow buffers: single messages, and those of decompressed message sets."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import MAX_TIMESTAMP_MS
from kafkalog_spark.kernels.primitives import crc_of, inlined, kernel, read_i32, read_i64, read_u32
from kafkalog_spark.kernels.rows import (
    Cursor,
    LegacyBatchColumn,
    Limit,
    Status,
    begin_batch,
    clear_bit,
    passes_filter,
    put_bytes,
    stop_decoding,
)

_MIN_SIZE_V0, _MIN_SIZE_V1 = layout.LEGACY_MIN_SIZE
_KEY_LENGTH_AT_V0, _KEY_LENGTH_AT_V1 = layout.LEGACY_KEY_LENGTH_AT
_LENGTH_SIZE = 4  # bytes of the length before a key and before a value


@kernel
def inspect_message_set(payload, start, end, magic, crc32_table):  # type: ignore[no-untyped-def]
    """Check that every message of a decompressed wrapper is valid.

    It must be complete, have the wrapper's magic, not be compressed and have a valid CRC-32.

    Args:
        payload: uint8[]; the messages are payload[start:end].
        start: Position of the first message.
        end: Position after the last message.
        magic: Magic of the wrapper, 0 or 1.
        crc32_table: primitives.CRC32_TABLE.

    Returns:
        (number of valid messages, inner offset of the last one, a Status, position in the payload at which the check
        stopped)
    """
    min_size = _MIN_SIZE_V1 if magic == 1 else _MIN_SIZE_V0
    at = start
    count = 0
    last_offset = np.int64(-1)
    while at < end:
        if end - at < min_size:
            return count, last_offset, np.int64(Status.RECORD_OVERRUNS), at
        size = read_i32(payload, at + layout.LENGTH_AT) + layout.LOG_OVERHEAD
        if size < min_size or size > end - at:
            return count, last_offset, np.int64(Status.RECORD_OVERRUNS), at
        if np.int64(payload[at + layout.MAGIC_AT]) != magic:
            return count, last_offset, np.int64(Status.INNER_MAGIC), at
        if payload[at + layout.LEGACY_ATTRIBUTES_AT] & layout.ATTRIBUTE_CODEC:
            return count, last_offset, np.int64(Status.NESTED), at
        crc = read_u32(payload, at + layout.LEGACY_CRC_AT)
        if crc_of(payload, at + layout.MAGIC_AT, at + size, crc32_table) != crc:
            return count, last_offset, np.int64(Status.INNER_CRC), at
        last_offset = read_i64(payload, at + layout.OFFSET_AT)
        count += 1
        at += size
    return count, last_offset, np.int64(Status.DONE) if count > 0 else np.int64(Status.EMPTY), at


@kernel
def decode_legacy(payload, starts, ends, batches, cursor, limits, offset_filter, timestamp_filter, rows):  # type: ignore[no-untyped-def]
    """Append the messages of the given message sets to `rows`, beginning at the position in `cursor`.

    Args:
        payload: uint8[], read-only. Set i is payload[starts[i]:ends[i]]: a single message, or the decompressed value of
            a wrapper that passed inspect_message_set.
        starts: int64[n].
        ends: int64[n].
        batches: int64[n, len(LegacyBatchColumn)].
        cursor: int64[], see rows.Cursor. LAST_DELTA is the absolute offset of the previous message; -1 for none.
        limits: int64[len(Limit)].
        offset_filter: Offsets of the requested messages, sorted int64[]; empty means no condition.
        timestamp_filter: Timestamps of the requested messages in ms, sorted int64[]; empty means no condition.
        rows: Rows.

    Returns:
        A Status. After a fault, cursor[BATCH] is the faulty set, and cursor[FAULT_POSITION] the byte of the payload.
    """
    for i in range(cursor[Cursor.BATCH], starts.size):
        at, previous = begin_batch(cursor, starts[i])
        status, at, previous = _append_messages(
            payload, at, ends[i], previous, batches[i], cursor, limits, offset_filter, timestamp_filter, rows
        )
        if status != Status.DONE:
            return stop_decoding(cursor, status, i, at, previous)
        cursor[Cursor.POSITION] = -1
    cursor[Cursor.BATCH], cursor[Cursor.POSITION] = starts.size, -1
    return np.int64(Status.DONE)


@inlined
def _append_messages(payload, at, end, previous, batch, cursor, limits, offset_filter, timestamp_filter, rows):  # type: ignore[no-untyped-def]
    """Append the messages in payload[at:end] that pass the filter.

    Args:
        previous: Offset of the message before `at`; -1 for none.

    Returns:
        (Status, position of the message at which it stopped, offset of the message before it)
    """
    magic, offset_shift, last_offset = (
        batch[LegacyBatchColumn.MAGIC],
        batch[LegacyBatchColumn.OFFSET_SHIFT],
        batch[LegacyBatchColumn.LAST_OFFSET],
    )
    is_log_append, log_append_timestamp = (
        batch[LegacyBatchColumn.IS_LOG_APPEND] != 0,
        batch[LegacyBatchColumn.LOG_APPEND_TIMESTAMP],
    )
    max_key, max_value = limits[Limit.KEY_BYTES], limits[Limit.VALUE_BYTES]
    want_key, want_value, want_headers = max_key >= 0, max_value >= 0, limits[Limit.HEADERS] >= 0
    want_timestamp = limits[Limit.WANT_TIMESTAMP] != 0
    row, key_filled, value_filled = cursor[Cursor.ROWS], cursor[Cursor.KEY_BYTES], cursor[Cursor.VALUE_BYTES]
    status = np.int64(Status.DONE)
    while at < end:
        size = read_i32(payload, at + layout.LENGTH_AT) + layout.LOG_OVERHEAD
        body_end = at + size
        offset = read_i64(payload, at + layout.OFFSET_AT) + offset_shift
        if offset <= previous or offset > last_offset:
            status = np.int64(Status.OFFSET_ORDER)
            break
        timestamp = np.int64(layout.NO_TIMESTAMP)
        if magic == 1:
            timestamp = log_append_timestamp if is_log_append else read_i64(payload, at + layout.LEGACY_TIMESTAMP_AT)
        wanted = (
            limits[Limit.OFFSET_FROM] <= offset < limits[Limit.OFFSET_UNTIL]
            and limits[Limit.TIMESTAMP_FROM] <= timestamp <= limits[Limit.TIMESTAMP_LAST]
        )
        if wanted:
            wanted = passes_filter(offset_filter, offset) and passes_filter(timestamp_filter, timestamp)
        if wanted:
            if row >= limits[Limit.ROWS]:
                status = np.int64(Status.FULL)
                break
            if want_timestamp and (timestamp > MAX_TIMESTAMP_MS or timestamp < -MAX_TIMESTAMP_MS):
                status = np.int64(Status.TIMESTAMP_RANGE)
                cursor[Cursor.FAULT_OFFSET], cursor[Cursor.FAULT_TIMESTAMP] = offset, timestamp
                break
            # Any negative size means null, as in Java (LegacyRecord.key, value).
            key_length_at = at + (_KEY_LENGTH_AT_V1 if magic == 1 else _KEY_LENGTH_AT_V0)
            key_at = key_length_at + _LENGTH_SIZE
            key_size = read_i32(payload, key_length_at)
            if key_size > body_end - key_at - _LENGTH_SIZE:
                status = np.int64(Status.FIELD_OVERRUNS)
                break
            value_at = key_at + max(key_size, 0) + _LENGTH_SIZE
            value_size = read_i32(payload, value_at - _LENGTH_SIZE)
            if value_size > body_end - value_at:
                status = np.int64(Status.FIELD_OVERRUNS)
                break
            if value_at + max(value_size, 0) != body_end:
                status = np.int64(Status.RECORD_LENGTH)
                break
            if want_key and key_filled + max(key_size, 0) > max_key:
                status, cursor[Cursor.NEEDED] = np.int64(Status.NEED_KEY_BYTES), key_size
                break
            if want_value and value_filled + max(value_size, 0) > max_value:
                status, cursor[Cursor.NEEDED] = np.int64(Status.NEED_VALUE_BYTES), value_size
                break
            if want_key:
                key_filled = put_bytes(
                    rows.key_data, rows.key_offsets, rows.key_valid, row, key_filled, payload, key_at, key_size
                )
                cursor[Cursor.KEY_NULLS] += key_size < 0
            if want_value:
                value_filled = put_bytes(
                    rows.value_data,
                    rows.value_offsets,
                    rows.value_valid,
                    row,
                    value_filled,
                    payload,
                    value_at,
                    value_size,
                )
                cursor[Cursor.VALUE_NULLS] += value_size < 0
            if want_headers:
                clear_bit(rows.header_lists_valid, row)
                rows.header_lists[row + 1] = np.int32(cursor[Cursor.HEADERS])
                cursor[Cursor.HEADER_LIST_NULLS] += 1
            if limits[Limit.WANT_OFFSET] != 0:
                rows.offset[row] = offset
            if want_timestamp:
                rows.timestamp[row] = timestamp * 1000
            if limits[Limit.WANT_TIMESTAMP_TYPE] != 0:
                rows.timestamp_type[row] = np.int32(batch[LegacyBatchColumn.TIMESTAMP_TYPE])
            row += 1
        previous = offset
        at = body_end
    cursor[Cursor.ROWS], cursor[Cursor.KEY_BYTES], cursor[Cursor.VALUE_BYTES] = row, key_filled, value_filled
    return status, at, previous
