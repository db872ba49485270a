"""Decode the records of v2 batches into Arrow buffers, one pass over the bytes.

Structure is checked as it is read: a batch that got past its CRC can still lie when whoever wrote it was wrong.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kafkalog_spark.log.kernels.primitives import copy_bytes, kernel, load_u64, short_varint, varint, varint32
from kafkalog_spark.log.kernels.rows import MAX_TIMESTAMP_MS, clear_bit, is_member, put_bytes, set_bit


@njit
def _put_headers(  # type: ignore[no-untyped-def]
    source, at, end, count, cursor, key_offsets, key_data, value_offsets, value_data, value_valid
):
    """Append `count` headers lying in source[at:end]. Returns DONE or a fault. The caller has made sure of the room."""
    # any negative length of a value stands for null, of a key for a fault: as Java's DefaultRecord.readHeaders
    header, key_filled, value_filled = cursor[3], cursor[4], cursor[5]
    for _ in range(count):
        size, at = varint32(source, at, end)
        if at > end or size > end - at:
            return 12
        if size < 0:
            return 15
        copy_bytes(key_data, key_filled, source, at, size)
        key_filled += size
        key_offsets[header + 1] = np.int32(key_filled)
        at += size
        size, at = varint32(source, at, end)
        if at > end or size > end - at:
            return 12
        value_filled = put_bytes(value_data, value_offsets, value_valid, header, value_filled, source, at, size)
        at += max(size, 0)
        cursor[9] += size < 0
        header += 1
    cursor[3], cursor[4], cursor[5] = header, key_filled, value_filled
    return 0 if at == end else 11


@kernel
def decode_v2(payload, starts, ends, units, cursor, limits, offsets_in, timestamps_in, rows):  # type: ignore[no-untyped-def]
    """Append the records of some v2 batches to `rows`, from where `cursor` stands.

    payload: uint8[], read-only; batch i's uncompressed records lie in payload[starts[i]:ends[i]] (int64).
    units: int64[n, 6]: base offset, last offset delta, record count, base timestamp, max timestamp, 1 for
    LogAppendTime.
    offsets_in, timestamps_in: sorted int64, empty for no condition. cursor, limits, rows: see rows.py.
    Returns a Status. After a fault, cursor[UNIT] and cursor[FAULT_AT] say where.
    """
    # Arrays are taken out of the tuple once: Numba counts references at each access, 200 ns a record.
    offset_out, timestamp_out, type_out = rows.offset, rows.timestamp, rows.timestamp_type
    key_offsets, key_data, key_valid = rows.key_offsets, rows.key_data, rows.key_valid
    value_offsets, value_data, value_valid = rows.value_offsets, rows.value_data, rows.value_valid
    lists, lists_valid = rows.header_lists, rows.header_lists_valid
    header_key_offsets, header_key_data = rows.header_key_offsets, rows.header_key_data
    header_value_offsets, header_value_data = rows.header_value_offsets, rows.header_value_data
    header_value_valid = rows.header_value_valid
    max_rows, max_key, max_value, max_headers = limits[0], limits[1], limits[2], limits[3]
    offset_from, offset_until, time_from, time_last = limits[6], limits[7], limits[8], limits[9]
    want_offset, want_timestamp, want_type = limits[10] != 0, limits[11] != 0, limits[12] != 0
    want_key, want_value, want_headers = max_key >= 0, max_value >= 0, max_headers >= 0
    has_lists = offsets_in.size > 0 or timestamps_in.size > 0
    row, key_filled, value_filled = cursor[0], cursor[1], cursor[2]
    status = 0
    for unit in range(cursor[10], starts.size):
        base_offset, last_delta, count = units[unit, 0], units[unit, 1], units[unit, 2]
        base_timestamp, max_timestamp, log_append = units[unit, 3], units[unit, 4], units[unit, 5]
        end = ends[unit]
        cursor[0], cursor[1], cursor[2] = row, key_filled, value_filled
        for i in range(10):
            cursor[16 + i] = cursor[i]
        first, at, previous_delta = cursor[11], cursor[12], cursor[13]
        if at < 0:
            first, at, previous_delta = 0, starts[unit], -1
        record = first
        if not has_lists and base_offset >= offset_from and base_offset + last_delta < offset_until:
            # Records as most are, while nothing about them needs a second thought: lengths of three bytes at most, no
            # headers, room in the buffers. The first other one ends it, and is looked at with all care below.
            safe = end - 16  # a record begins with a length, attributes and two deltas: 10 bytes are looked at
            key_nulls, value_nulls, without_headers, headers_before = 0, 0, 0, np.int32(cursor[3])
            while record < count and at <= safe and row < max_rows:
                size, length = short_varint(load_u64(payload, at))
                body_end = at + length + size
                if length == 0 or size < 0 or body_end > end:
                    break
                cur = at + length + 1
                word = load_u64(payload, cur)
                timestamp_delta, length = short_varint(word)
                word >>= np.uint64(8 * length)
                delta, more = short_varint(word)
                if length == 0 or more == 0 or delta <= previous_delta or delta > last_delta:
                    break
                cur += length + more
                timestamp = max_timestamp if log_append != 0 else base_timestamp + timestamp_delta
                if timestamp < time_from or timestamp > time_last:
                    break
                if want_timestamp and (timestamp > MAX_TIMESTAMP_MS or timestamp < -MAX_TIMESTAMP_MS):
                    break
                if cur > body_end:
                    break
                if want_key or want_value or want_headers:
                    if cur + 8 > end:
                        break
                    key_size, length = short_varint(load_u64(payload, cur))
                    key_at = cur + length
                    value_at = key_at + max(key_size, 0)
                    if length == 0 or key_size < -1 or value_at + 8 > end:
                        break
                    value_size, length = short_varint(load_u64(payload, value_at))
                    value_at += length
                    cur = value_at + max(value_size, 0)
                    if length == 0 or value_size < -1 or cur + 1 != body_end or payload[cur] != 0:
                        break
                    if want_key and key_filled + max(key_size, 0) > max_key:
                        break
                    if want_value and value_filled + max(value_size, 0) > max_value:
                        break
                    if want_key:
                        key_filled = put_bytes(
                            key_data, key_offsets, key_valid, row, key_filled, payload, key_at, key_size
                        )
                        key_nulls += key_size < 0
                    if want_value:
                        value_filled = put_bytes(
                            value_data, value_offsets, value_valid, row, value_filled, payload, value_at, value_size
                        )
                        value_nulls += value_size < 0
                    if want_headers:
                        clear_bit(lists_valid, row)
                        without_headers += 1
                        lists[row + 1] = headers_before
                if want_offset:
                    offset_out[row] = base_offset + delta
                if want_timestamp:
                    timestamp_out[row] = timestamp * 1000
                if want_type:
                    type_out[row] = np.int32(log_append)
                row += 1
                previous_delta = delta
                at = body_end
                record += 1
            cursor[6] += key_nulls
            cursor[7] += value_nulls
            cursor[8] += without_headers
        while record < count:
            size, body = varint32(payload, at, end)
            if body > end or size < 0 or size > end - body:
                status = 10
                break
            body_end = body + size
            timestamp_delta, cur = varint(payload, body + 1, body_end)
            delta, cur = varint32(payload, cur, body_end)
            if cur > body_end:
                status = 12
                break
            if delta <= previous_delta or delta > last_delta:
                status = 14
                break
            offset = base_offset + delta
            timestamp = max_timestamp if log_append != 0 else base_timestamp + timestamp_delta
            wanted = offset_from <= offset < offset_until and time_from <= timestamp <= time_last
            if wanted and has_lists:
                wanted = is_member(offsets_in, offset) and is_member(timestamps_in, timestamp)
            if wanted:
                if row >= max_rows:
                    status = 1
                    break
                if want_timestamp and (timestamp > MAX_TIMESTAMP_MS or timestamp < -MAX_TIMESTAMP_MS):
                    status = 16
                    break
                if want_key or want_value or want_headers:
                    # any negative size stands for null, as in Java (Utils.readBytes)
                    key_size, key_at = varint32(payload, cur, body_end)
                    if key_at > body_end or key_size > body_end - key_at:
                        status = 12
                        break
                    value_size, value_at = varint32(payload, key_at + max(key_size, 0), body_end)
                    if value_at > body_end or value_size > body_end - value_at:
                        status = 12
                        break
                    headers, cur = varint32(payload, value_at + max(value_size, 0), body_end)
                    # a header takes two bytes at least
                    if cur > body_end or headers < 0 or headers > (body_end - cur) // 2:
                        status = 12
                        break
                    if headers == 0 and cur != body_end:
                        status = 11
                        break
                    if want_key and key_filled + max(key_size, 0) > max_key:
                        status, cursor[15] = 2, key_size
                        break
                    if want_value and value_filled + max(value_size, 0) > max_value:
                        status, cursor[15] = 3, value_size
                        break
                    if want_headers:
                        if headers > 0:
                            room = body_end - cur  # no key or value of a header is longer than the rest of the record
                            if cursor[3] + headers > max_headers:
                                status, cursor[15] = 4, headers
                                break
                            if cursor[4] + room > limits[4]:
                                status, cursor[15] = 5, room
                                break
                            if cursor[5] + room > limits[5]:
                                status, cursor[15] = 6, room
                                break
                            status = _put_headers(
                                payload, cur, body_end, headers, cursor, header_key_offsets, header_key_data,
                                header_value_offsets, header_value_data, header_value_valid,
                            )  # fmt: skip
                            if status != 0:
                                break
                            set_bit(lists_valid, row)
                        else:
                            clear_bit(lists_valid, row)
                            cursor[8] += 1
                        lists[row + 1] = np.int32(cursor[3])
                    if want_key:
                        key_filled = put_bytes(
                            key_data, key_offsets, key_valid, row, key_filled, payload, key_at, key_size
                        )
                        cursor[6] += key_size < 0
                    if want_value:
                        value_filled = put_bytes(
                            value_data, value_offsets, value_valid, row, value_filled, payload, value_at, value_size
                        )
                        cursor[7] += value_size < 0
                if want_offset:
                    offset_out[row] = offset
                if want_timestamp:
                    timestamp_out[row] = timestamp * 1000
                if want_type:
                    type_out[row] = np.int32(log_append)
                row += 1
            previous_delta = delta
            at = body_end
            record += 1
        if status == 0 and at != end:
            status = 13
        if status != 0:
            if 2 <= status <= 6 and row > 0:
                status = 1
            cursor[0], cursor[1], cursor[2] = row, key_filled, value_filled
            if status >= 10:
                for i in range(10):
                    cursor[i] = cursor[16 + i]  # nothing of a bad batch stays in the buffers
            cursor[10], cursor[11], cursor[12], cursor[13], cursor[14] = unit, record, at, previous_delta, at
            return status
        cursor[12] = -1
    cursor[0], cursor[1], cursor[2] = row, key_filled, value_filled
    cursor[10], cursor[12] = starts.size, -1
    return 0
