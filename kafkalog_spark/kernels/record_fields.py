"""Locate and validate the fields of one v2 record. Compiled into every kernel that reads records, except decode_v2.

The rules are those of Java's DefaultRecord.readFrom, which broker and consumer share:

- all lengths, the offset delta and the header count are varints of 32 bits and at most five bytes; the timestamp delta
  has 64 bits and at most ten bytes;
- any negative length of a key, a value or a header value means null; a header key must not be null;
- a record ends exactly where its length says.

`kafkalog_spark.format.records` implements the same rules in plain Python, and decode_v2 implements them in the pass
that also copies the fields. Tests compare the three.
"""

from __future__ import annotations

import numpy as np

from kafkalog_spark.format.records import RecordFault
from kafkalog_spark.kernels.primitives import (
    INVALID_POSITION,
    helper,
    inlined,
    load_u64,
    short_varint,
    varint,
    varint32,
)


@inlined
def record_fields(payload, at, end):  # type: ignore[no-untyped-def]
    """Locate the fields of the record that begins at payload[at].

    Nothing outside of payload[at:end] is read. payload: uint8[].

    Returns:
        (fault, position after the record, timestamp delta, offset delta, position of the key, its size, size of the
        value). `fault` is a records.RecordFault; unless it is NONE, the other values are undefined. The size of null is
        negative.
    """
    done = False
    body_end, timestamp_delta, delta, key_at, key_size, value_size = at, at, at, at, at, at
    fault = np.int64(RecordFault.NONE)
    # Fast path: most records have lengths of at most three bytes and no headers. Fields are loaded eight bytes at a
    # time, so the record must not be close to the end of the payload.
    if end - at >= 16:
        size, length = short_varint(load_u64(payload, at))
        body_end = at + length + size
        cur = at + length + 1
        word = load_u64(payload, cur)
        timestamp_delta, more = short_varint(word)
        word >>= np.uint64(8 * more)
        delta, last = short_varint(word)
        cur += more + last
        if length != 0 and more != 0 and last != 0 and size >= 0 and body_end <= end and cur + 8 <= end:
            key_size, length = short_varint(load_u64(payload, cur))
            key_at = cur + length
            cur = key_at + max(key_size, np.int64(0))
            if length != 0 and cur + 8 <= end:
                value_size, length = short_varint(load_u64(payload, cur))
                cur += length + max(value_size, np.int64(0))
                # If any field went past the end of the record, `cur` is past it as well.
                done = length != 0 and cur + 1 == body_end and payload[cur] == 0
    if not done:
        fault, body_end, timestamp_delta, delta, key_at, key_size, value_size = _any_record_fields(payload, at, end)
    return fault, body_end, timestamp_delta, delta, key_at, key_size, value_size


@helper
def well_formed(payload, start, end, count, last_delta):  # type: ignore[no-untyped-def]
    """True if payload[start:end] is exactly `count` well-formed records, offset deltas increasing, up to `last_delta`.

    These are the conditions under which a reader accepts the batch. payload: uint8[].
    """
    at = start
    previous = np.int64(-1)
    for _ in range(count):
        fault, record_end, _, delta, _, _, _ = record_fields(payload, at, end)
        if fault != RecordFault.NONE or delta <= previous or delta > last_delta:
            return False
        previous = delta
        at = record_end
    return at == end


@helper
def _any_record_fields(payload, at, end):  # type: ignore[no-untyped-def]
    """As record_fields, without the fast path."""
    nothing = np.int64(0)
    size, body = varint32(payload, at, end)
    if body > end:
        return np.int64(RecordFault.TOO_FEW), nothing, nothing, nothing, nothing, nothing, nothing
    if size < 0:
        return np.int64(RecordFault.BAD_LENGTH), nothing, nothing, nothing, nothing, nothing, nothing
    if size > end - body:
        return np.int64(RecordFault.TOO_FEW), nothing, nothing, nothing, nothing, nothing, nothing
    body_end = body + size
    # One check covers several fields: a varint that goes past the end yields INVALID_POSITION, and positions only grow.
    timestamp_delta, cur = varint(payload, body + 1, body_end)
    delta, cur = varint32(payload, cur, body_end)
    key_size, key_at = varint32(payload, cur, body_end)
    if key_at > body_end or key_size > body_end - key_at:
        return np.int64(RecordFault.BAD_RECORD), nothing, nothing, nothing, nothing, nothing, nothing
    value_size, cur = varint32(payload, key_at + max(key_size, nothing), body_end)
    if cur > body_end or value_size > body_end - cur:
        return np.int64(RecordFault.BAD_RECORD), nothing, nothing, nothing, nothing, nothing, nothing
    headers, cur = varint32(payload, cur + max(value_size, nothing), body_end)
    if cur > body_end or headers < 0 or headers > body_end - cur:
        return np.int64(RecordFault.BAD_RECORD), nothing, nothing, nothing, nothing, nothing, nothing
    if headers > 0:
        cur = _after_headers(payload, cur, body_end, headers)
    if cur != body_end:
        return np.int64(RecordFault.BAD_RECORD), nothing, nothing, nothing, nothing, nothing, nothing
    return np.int64(RecordFault.NONE), body_end, timestamp_delta, delta, key_at, key_size, value_size


@helper
def _after_headers(payload, at, end, headers):  # type: ignore[no-untyped-def]
    """Return the position after `headers` record headers in payload[at:end]; INVALID_POSITION if one is malformed."""
    for _ in range(headers):
        size, at = varint32(payload, at, end)
        if at > end or size < 0 or size > end - at:
            return INVALID_POSITION
        size, at = varint32(payload, at + size, end)
        if at > end or size > end - at:
            return INVALID_POSITION
        at += max(size, np.int64(0))
    return at
