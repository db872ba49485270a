"""Decode the records of v2 batches into Arrow buffers, in one pass over the bytes.

The structure is checked while it is read: a batch with a valid CRC can be malformed, if its writer had a bug.
`_plain_records` is the fast path; it stops before the first record that is not plain. `_any_records` continues there,
and checks every rule. Both write a record only after all checks of that record.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kafkalog_spark.format.layout import MAX_TIMESTAMP_MS
from kafkalog_spark.kernels.primitives import (
    copy_bytes,
    helper,
    inlined,
    kernel,
    load_u64,
    short_varint,
    varint,
    varint32,
)
from kafkalog_spark.kernels.rows import (
    BatchColumn,
    Cursor,
    Limit,
    Status,
    begin_batch,
    clear_bit,
    passes_filter,
    put_bytes,
    set_bit,
    stop_decoding,
)

_LOOKAHEAD = 16
"""Readable bytes that the fast path requires from the beginning of a record. Its length, attributes and two deltas take
at most 10 bytes. They are loaded eight at a time, the last time from byte 4 at the latest."""


@kernel
def decode_v2(payload, starts, ends, batches, cursor, limits, offset_filter, timestamp_filter, rows):  # type: ignore[no-untyped-def]
    """Append the records of the given v2 batches to `rows`, beginning at the position in `cursor`.

    Args:
        payload: uint8[], read-only; the uncompressed records of batch i are payload[starts[i]:ends[i]].
        starts: int64[n].
        ends: int64[n].
        batches: int64[n, len(BatchColumn)].
        cursor: int64[], see rows.Cursor.
        limits: int64[len(Limit)].
        offset_filter: Offsets of the requested records, sorted int64[]; empty means no condition.
        timestamp_filter: Timestamps of the requested records in ms, sorted int64[]; empty means no condition.
        rows: Rows.

    Returns:
        A Status. After a fault, cursor[BATCH] is the faulty batch, and cursor[FAULT_POSITION] the byte of the payload.
    """
    has_lists = offset_filter.size > 0 or timestamp_filter.size > 0
    for i in range(cursor[Cursor.BATCH], starts.size):
        batch, end = batches[i], ends[i]
        at, previous_delta = begin_batch(cursor, starts[i])
        record = cursor[Cursor.RECORD]
        last_offset = batch[BatchColumn.BASE_OFFSET] + batch[BatchColumn.LAST_DELTA]
        if (
            not has_lists
            and batch[BatchColumn.BASE_OFFSET] >= limits[Limit.OFFSET_FROM]
            and last_offset < limits[Limit.OFFSET_UNTIL]
        ):  # fmt: skip
            record, at, previous_delta = _plain_records(
                payload, at, end, record, previous_delta, batch, cursor, limits, rows
            )
        status, record, at, previous_delta = _any_records(
            payload, at, end, record, previous_delta, batch, cursor, limits, (offset_filter, timestamp_filter), rows
        )
        if status == Status.DONE and at != end:
            status = np.int64(Status.TRAILING_BYTES)
        if status != Status.DONE:
            cursor[Cursor.RECORD] = record
            return stop_decoding(cursor, status, i, at, previous_delta)
        cursor[Cursor.POSITION] = -1
    cursor[Cursor.BATCH], cursor[Cursor.POSITION] = starts.size, -1
    return np.int64(Status.DONE)


# Not `inlined`: LLVM must optimise this function by itself, and once more in the kernel. Otherwise small records decode
# more slowly (benchmarks/decode.py).
@njit(forceinline=True, _nrt=False)
def _plain_records(payload, at, end, record, previous_delta, batch, cursor, limits, rows):  # type: ignore[no-untyped-def]
    """Append plain records, and stop before the first record that is not plain.

    A plain record has lengths of at most three bytes and no headers, passes the filter, and fits into the buffers.

    Returns:
        (number of the record at which it stopped, its position, offset delta of the record before it)
    """
    base_offset, last_delta, count = (
        batch[BatchColumn.BASE_OFFSET],
        batch[BatchColumn.LAST_DELTA],
        batch[BatchColumn.COUNT],
    )
    base_timestamp, max_timestamp, log_append = (
        batch[BatchColumn.BASE_TIMESTAMP],
        batch[BatchColumn.MAX_TIMESTAMP],
        batch[BatchColumn.LOG_APPEND],
    )
    # Load arrays and limits into variables once: a store into a buffer could change them, as far as LLVM knows.
    offset_out, timestamp_out, type_out = rows.offset, rows.timestamp, rows.timestamp_type
    key_offsets, key_data, key_valid = rows.key_offsets, rows.key_data, rows.key_valid
    value_offsets, value_data, value_valid = rows.value_offsets, rows.value_data, rows.value_valid
    lists, lists_valid = rows.header_lists, rows.header_lists_valid
    max_rows, max_key, max_value = limits[Limit.ROWS], limits[Limit.KEY_BYTES], limits[Limit.VALUE_BYTES]
    want_key, want_value, want_headers = max_key >= 0, max_value >= 0, limits[Limit.HEADERS] >= 0
    want_offset, want_timestamp = limits[Limit.WANT_OFFSET] != 0, limits[Limit.WANT_TIMESTAMP] != 0
    want_type = limits[Limit.WANT_TIMESTAMP_TYPE] != 0
    time_from, time_last = limits[Limit.TIMESTAMP_FROM], limits[Limit.TIMESTAMP_LAST]
    row, key_filled, value_filled = cursor[Cursor.ROWS], cursor[Cursor.KEY_BYTES], cursor[Cursor.VALUE_BYTES]
    key_nulls, value_nulls, without_headers, headers_before = 0, 0, 0, np.int32(cursor[Cursor.HEADERS])
    safe = end - _LOOKAHEAD
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
                key_filled = put_bytes(key_data, key_offsets, key_valid, row, key_filled, payload, key_at, key_size)
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
    cursor[Cursor.ROWS], cursor[Cursor.KEY_BYTES], cursor[Cursor.VALUE_BYTES] = row, key_filled, value_filled
    cursor[Cursor.KEY_NULLS] += key_nulls
    cursor[Cursor.VALUE_NULLS] += value_nulls
    cursor[Cursor.HEADER_LIST_NULLS] += without_headers
    return record, at, previous_delta


@inlined
def _any_records(payload, at, end, record, previous_delta, batch, cursor, limits, lists, rows):  # type: ignore[no-untyped-def]
    """Check the records from number `record` on by all rules, and append those that pass the filter.

    Args:
        lists: (offset_filter, timestamp_filter) of decode_v2.

    Returns:
        (Status, number of the record at which it stopped, its position, offset delta of the record before it)
    """
    base_offset, last_delta, count = (
        batch[BatchColumn.BASE_OFFSET],
        batch[BatchColumn.LAST_DELTA],
        batch[BatchColumn.COUNT],
    )
    base_timestamp, max_timestamp, log_append = (
        batch[BatchColumn.BASE_TIMESTAMP],
        batch[BatchColumn.MAX_TIMESTAMP],
        batch[BatchColumn.LOG_APPEND],
    )
    max_key, max_value = limits[Limit.KEY_BYTES], limits[Limit.VALUE_BYTES]
    want_key, want_value, want_headers = max_key >= 0, max_value >= 0, limits[Limit.HEADERS] >= 0
    want_timestamp = limits[Limit.WANT_TIMESTAMP] != 0
    offset_filter, timestamp_filter = lists
    has_lists = offset_filter.size > 0 or timestamp_filter.size > 0
    row, key_filled, value_filled = cursor[Cursor.ROWS], cursor[Cursor.KEY_BYTES], cursor[Cursor.VALUE_BYTES]
    status = np.int64(Status.DONE)
    while record < count:
        size, body = varint32(payload, at, end)
        if body > end or size < 0 or size > end - body:
            status = np.int64(Status.RECORD_OVERRUNS)
            break
        body_end = body + size
        timestamp_delta, cur = varint(payload, body + 1, body_end)
        delta, cur = varint32(payload, cur, body_end)
        if cur > body_end:
            status = np.int64(Status.FIELD_OVERRUNS)
            break
        if delta <= previous_delta or delta > last_delta:
            status = np.int64(Status.OFFSET_ORDER)
            break
        offset = base_offset + delta
        timestamp = max_timestamp if log_append != 0 else base_timestamp + timestamp_delta
        wanted = limits[Limit.OFFSET_FROM] <= offset < limits[Limit.OFFSET_UNTIL]
        wanted = wanted and limits[Limit.TIMESTAMP_FROM] <= timestamp <= limits[Limit.TIMESTAMP_LAST]
        if wanted and has_lists:
            wanted = passes_filter(offset_filter, offset) and passes_filter(timestamp_filter, timestamp)
        if wanted:
            if row >= limits[Limit.ROWS]:
                status = np.int64(Status.FULL)
                break
            if want_timestamp and (timestamp > MAX_TIMESTAMP_MS or timestamp < -MAX_TIMESTAMP_MS):
                status = np.int64(Status.TIMESTAMP_RANGE)
                cursor[Cursor.FAULT_OFFSET], cursor[Cursor.FAULT_TIMESTAMP] = offset, timestamp
                break
            if want_key or want_value or want_headers:
                status, key_at, key_size, value_at, value_size, headers, cur = _fields(payload, cur, body_end)
                if status != Status.DONE:
                    break
                if want_key and key_filled + max(key_size, 0) > max_key:
                    status, cursor[Cursor.NEEDED] = np.int64(Status.NEED_KEY_BYTES), key_size
                    break
                if want_value and value_filled + max(value_size, 0) > max_value:
                    status, cursor[Cursor.NEEDED] = np.int64(Status.NEED_VALUE_BYTES), value_size
                    break
                if want_headers and headers > 0:
                    # All header keys, and all values, together are no longer than the rest of the record.
                    status, needed = _room_for_headers(headers, body_end - cur, cursor, limits)
                    if status != Status.DONE:
                        cursor[Cursor.NEEDED] = needed
                        break
                    status = _put_headers(payload, cur, body_end, headers, cursor, rows)
                    if status != Status.DONE:
                        break
                    set_bit(rows.header_lists_valid, row)
                elif want_headers:
                    clear_bit(rows.header_lists_valid, row)
                    cursor[Cursor.HEADER_LIST_NULLS] += 1
                if want_headers:
                    rows.header_lists[row + 1] = np.int32(cursor[Cursor.HEADERS])
                if want_key:
                    key_filled = put_bytes(
                        rows.key_data, rows.key_offsets, rows.key_valid, row, key_filled, payload, key_at, key_size
                    )
                    cursor[Cursor.KEY_NULLS] += key_size < 0
                if want_value:
                    value_filled = put_bytes(
                        rows.value_data, rows.value_offsets, rows.value_valid, row, value_filled,
                        payload, value_at, value_size,
                    )  # fmt: skip
                    cursor[Cursor.VALUE_NULLS] += value_size < 0
            if limits[Limit.WANT_OFFSET] != 0:
                rows.offset[row] = offset
            if want_timestamp:
                rows.timestamp[row] = timestamp * 1000
            if limits[Limit.WANT_TIMESTAMP_TYPE] != 0:
                rows.timestamp_type[row] = np.int32(log_append)
            row += 1
        previous_delta = delta
        at = body_end
        record += 1
    cursor[Cursor.ROWS], cursor[Cursor.KEY_BYTES], cursor[Cursor.VALUE_BYTES] = row, key_filled, value_filled
    return status, record, at, previous_delta


@inlined
def _fields(payload, at, end):  # type: ignore[no-untyped-def]
    """Locate the fields in payload[at:end], the part of a record after its offset delta.

    Any negative size means null, as in Java (Utils.readBytes).

    Returns:
        (DONE or a fault, position of the key, its size, position of the value, its size, header count, position of the
        first header)
    """
    status = np.int64(Status.DONE)
    key_size, key_at = varint32(payload, at, end)
    if key_at > end or key_size > end - key_at:
        status, key_size, key_at = np.int64(Status.FIELD_OVERRUNS), np.int64(0), end
    value_size, value_at = varint32(payload, key_at + max(key_size, 0), end)
    if value_at > end or value_size > end - value_at:
        status, value_size, value_at = np.int64(Status.FIELD_OVERRUNS), np.int64(0), end
    headers, cur = varint32(payload, value_at + max(value_size, 0), end)
    # A header takes at least two bytes.
    if cur > end or headers < 0 or headers > (end - cur) // 2:
        status = np.int64(Status.FIELD_OVERRUNS)
    elif headers == 0 and cur != end:
        status = np.int64(Status.RECORD_LENGTH)
    return status, key_at, key_size, value_at, value_size, headers, cur


@inlined
def _room_for_headers(headers, size, cursor, limits):  # type: ignore[no-untyped-def]
    """Check that `headers` headers of `size` bytes in total fit. Returns (DONE or NEED_*, value for cursor[NEEDED])."""
    if cursor[Cursor.HEADERS] + headers > limits[Limit.HEADERS]:
        return np.int64(Status.NEED_HEADERS), headers
    if cursor[Cursor.HEADER_KEY_BYTES] + size > limits[Limit.HEADER_KEY_BYTES]:
        return np.int64(Status.NEED_HEADER_KEY_BYTES), size
    if cursor[Cursor.HEADER_VALUE_BYTES] + size > limits[Limit.HEADER_VALUE_BYTES]:
        return np.int64(Status.NEED_HEADER_VALUE_BYTES), size
    return np.int64(Status.DONE), size


@helper
def _put_headers(payload, at, end, count, cursor, rows):  # type: ignore[no-untyped-def]
    """Append the `count` headers in payload[at:end], for which the buffers have room. Returns DONE or a fault."""
    # A negative length means null for a value, and is a fault for a key (Java: DefaultRecord.readHeaders).
    header = cursor[Cursor.HEADERS]
    key_filled, value_filled = cursor[Cursor.HEADER_KEY_BYTES], cursor[Cursor.HEADER_VALUE_BYTES]
    for _ in range(count):
        size, at = varint32(payload, at, end)
        if at > end or size > end - at:
            return np.int64(Status.FIELD_OVERRUNS)
        if size < 0:
            return np.int64(Status.HEADER_KEY_NULL)
        copy_bytes(rows.header_key_data, key_filled, payload, at, size)
        key_filled += size
        rows.header_key_offsets[header + 1] = np.int32(key_filled)
        at += size
        size, at = varint32(payload, at, end)
        if at > end or size > end - at:
            return np.int64(Status.FIELD_OVERRUNS)
        value_filled = put_bytes(
            rows.header_value_data, rows.header_value_offsets, rows.header_value_valid, header, value_filled,
            payload, at, size,
        )  # fmt: skip
        at += max(size, 0)
        cursor[Cursor.HEADER_VALUE_NULLS] += size < 0
        header += 1
    cursor[Cursor.HEADERS] = header
    cursor[Cursor.HEADER_KEY_BYTES], cursor[Cursor.HEADER_VALUE_BYTES] = key_filled, value_filled
    return np.int64(Status.DONE) if at == end else np.int64(Status.RECORD_LENGTH)
