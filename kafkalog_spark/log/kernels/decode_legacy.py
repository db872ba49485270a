"""Decode messages v0 and v1, alone or out of a compressed message set, into Arrow buffers."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.log.kernels.primitives import crc_of, kernel, read_i32, read_i64, read_u32
from kafkalog_spark.log.kernels.rows import MAX_TIMESTAMP_MS, clear_bit, is_member, put_bytes


@kernel
def inspect_message_set(payload, start, end, magic, crc32_table):  # type: ignore[no-untyped-def]
    """Check every message of an opened wrapper: whole, of the wrapper's magic, not compressed again, CRC-32 right.

    Returns (messages, last inner offset, Status, position of the fault in the payload).
    """
    smallest = 34 if magic == 1 else 26
    at = start
    count = 0
    last = np.int64(-1)
    while at < end:
        if end - at < smallest:
            return count, last, 10, at
        size = read_i32(payload, at + 8) + 12
        if size < smallest or size > end - at:
            return count, last, 10, at
        if np.int64(payload[at + 16]) != magic:
            return count, last, 17, at
        if payload[at + 17] & 7:
            return count, last, 19, at
        if crc_of(payload, at + 16, at + size, crc32_table) != read_u32(payload, at + 12):
            return count, last, 18, at
        last = read_i64(payload, at)
        count += 1
        at += size
    return count, last, 0 if count > 0 else 20, at


@kernel
def decode_legacy(payload, starts, ends, units, cursor, limits, offsets_in, timestamps_in, rows):  # type: ignore[no-untyped-def]
    """Append the messages of some message sets to `rows`, from where `cursor` stands.

    payload: uint8[], read-only; set i lies in payload[starts[i]:ends[i]]: one message, or the opened value of a wrapper
    that inspect_message_set has passed. units: int64[n, 6]: magic, what to add to each offset, last offset, 1 when the
    wrapper's timestamp replaces each message's (LogAppendTime), that timestamp (ms), timestamp type (-1, 0, 1).
    The rest, and the answer, as decode_v2.
    """
    offset_out, timestamp_out, type_out = rows.offset, rows.timestamp, rows.timestamp_type
    key_offsets, key_data, key_valid = rows.key_offsets, rows.key_data, rows.key_valid
    value_offsets, value_data, value_valid = rows.value_offsets, rows.value_data, rows.value_valid
    lists, lists_valid = rows.header_lists, rows.header_lists_valid
    max_rows, max_key, max_value = limits[0], limits[1], limits[2]
    want_key, want_value, want_headers = max_key >= 0, max_value >= 0, limits[3] >= 0
    row, key_filled, value_filled = cursor[0], cursor[1], cursor[2]
    status = 0
    for unit in range(cursor[10], starts.size):
        magic, add, last = units[unit, 0], units[unit, 1], units[unit, 2]
        replaced, replacement, timestamp_type = units[unit, 3], units[unit, 4], units[unit, 5]
        end = ends[unit]
        cursor[0], cursor[1], cursor[2] = row, key_filled, value_filled
        for i in range(10):
            cursor[16 + i] = cursor[i]
        at, previous = cursor[12], cursor[13]
        if at < 0:
            at, previous = starts[unit], -1
        while at < end:
            size = read_i32(payload, at + 8) + 12
            body_end = at + size
            offset = read_i64(payload, at) + add
            if offset <= previous or offset > last:
                status = 14
                break
            timestamp = np.int64(-1)
            if magic == 1:
                timestamp = replacement if replaced != 0 else read_i64(payload, at + 18)
            wanted = limits[6] <= offset < limits[7] and limits[8] <= timestamp <= limits[9]
            if wanted:
                wanted = is_member(offsets_in, offset) and is_member(timestamps_in, timestamp)
            if wanted:
                if row >= max_rows:
                    status = 1
                    break
                if limits[11] != 0 and (timestamp > MAX_TIMESTAMP_MS or timestamp < -MAX_TIMESTAMP_MS):
                    status = 16
                    break
                # any negative size stands for null, as in Java (LegacyRecord.key, value)
                key_at = at + (30 if magic == 1 else 22)
                key_size = read_i32(payload, key_at - 4)
                if key_size > body_end - key_at - 4:
                    status = 12
                    break
                value_at = key_at + max(key_size, 0) + 4
                value_size = read_i32(payload, value_at - 4)
                if value_size > body_end - value_at:
                    status = 12
                    break
                if value_at + max(value_size, 0) != body_end:
                    status = 11
                    break
                if want_key and key_filled + max(key_size, 0) > max_key:
                    status, cursor[15] = 2, key_size
                    break
                if want_value and value_filled + max(value_size, 0) > max_value:
                    status, cursor[15] = 3, value_size
                    break
                if want_key:
                    key_filled = put_bytes(key_data, key_offsets, key_valid, row, key_filled, payload, key_at, key_size)
                    cursor[6] += key_size < 0
                if want_value:
                    value_filled = put_bytes(
                        value_data, value_offsets, value_valid, row, value_filled, payload, value_at, value_size
                    )
                    cursor[7] += value_size < 0
                if want_headers:
                    clear_bit(lists_valid, row)
                    lists[row + 1] = np.int32(cursor[3])
                    cursor[8] += 1
                if limits[10] != 0:
                    offset_out[row] = offset
                if limits[11] != 0:
                    timestamp_out[row] = timestamp * 1000
                if limits[12] != 0:
                    type_out[row] = np.int32(timestamp_type)
                row += 1
            previous = offset
            at = body_end
        if status != 0:
            if 2 <= status <= 6 and row > 0:
                status = 1
            cursor[0], cursor[1], cursor[2] = row, key_filled, value_filled
            if status >= 10:
                for i in range(10):
                    cursor[i] = cursor[16 + i]  # nothing of a bad batch stays in the buffers
            cursor[10], cursor[12], cursor[13], cursor[14] = unit, at, previous, at
            return status
        cursor[12] = -1
    cursor[0], cursor[1], cursor[2] = row, key_filled, value_filled
    cursor[10], cursor[12] = starts.size, -1
    return 0
