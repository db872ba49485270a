"""Fields of one v2 record, located and validated: a function that is compiled into every kernel except the decoder.

The rules are those of Java's DefaultRecord.readFrom, which broker and consumer share:

- all lengths, the offset delta and the header count are varints of 32 bits and at most five bytes; the timestamp delta
  has 64 bits and at most ten bytes;
- any negative length of a key, a value or a header value means null; a header key must not be null;
- a record ends exactly where its length says.

`kafkalog_spark.format.records` implements the same rules in plain Python, and decode_v2 in one pass with its copying;
tests compare the three.
"""

from __future__ import annotations

import numpy as np

from kafkalog_spark.format.records import RecordFault
from kafkalog_spark.kernels.primitives import (
    TOO_FAR,
    helper,
    inlined,
    load_u64,
    short_varint,
    varint,
    varint32,
)


@helper
def behind_headers(payload, at, end, headers):  # type: ignore[no-untyped-def]
    """Position after `headers` record headers in payload[at:end]; TOO_FAR when they do not lie there."""
    for _ in range(headers):
        size, at = varint32(payload, at, end)
        if at > end or size < 0 or size > end - at:
            return TOO_FAR
        size, at = varint32(payload, at + size, end)
        if at > end or size > end - at:
            return TOO_FAR
        at += max(size, np.int64(0))
    return at


@helper
def _with_care(payload, at, end):  # type: ignore[no-untyped-def]
    """As record_fields, for records of any form."""
    nothing = np.int64(0)
    size, body = varint32(payload, at, end)
    if body > end:
        return np.int64(RecordFault.TOO_FEW), nothing, nothing, nothing, nothing, nothing, nothing
    if size < 0:
        return np.int64(RecordFault.BAD_LENGTH), nothing, nothing, nothing, nothing, nothing, nothing
    if size > end - body:
        return np.int64(RecordFault.TOO_FEW), nothing, nothing, nothing, nothing, nothing, nothing
    body_end = body + size
    # Each position is looked at once for several fields: one that ran over its end is TOO_FAR, and stays beyond it.
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
        cur = behind_headers(payload, cur, body_end, headers)
    if cur != body_end:
        return np.int64(RecordFault.BAD_RECORD), nothing, nothing, nothing, nothing, nothing, nothing
    return np.int64(RecordFault.NONE), body_end, timestamp_delta, delta, key_at, key_size, value_size


@inlined
def record_fields(payload, at, end):  # type: ignore[no-untyped-def]
    """The record at payload[at:end] -> (fault, end of it, timestamp delta, offset delta, key at, key size, value size).

    fault: a records.RecordFault; unless it is NONE the rest means nothing. Sizes are negative for null. Nothing outside
    of payload[at:end] is read.
    """
    done = False
    body_end, timestamp_delta, delta, key_at, key_size, value_size = at, at, at, at, at, at
    fault = np.int64(RecordFault.NONE)
    # Most records have lengths of three bytes at most, and no headers. Eight bytes are loaded at once, so they lie some
    # way before the end.
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
                # a field that ran over the record's end is beyond it for good
                done = length != 0 and cur + 1 == body_end and payload[cur] == 0
    if not done:
        fault, body_end, timestamp_delta, delta, key_at, key_size, value_size = _with_care(payload, at, end)
    return fault, body_end, timestamp_delta, delta, key_at, key_size, value_size


@helper
def well_formed(payload, start, end, count, last_delta):  # type: ignore[no-untyped-def]
    """True if payload[start:end] is exactly `count` well-formed records whose offset deltas rise, from 0 at least to
    `last_delta` at most: what a reader asks for."""
    at = start
    previous = np.int64(-1)
    for _ in range(count):
        fault, record_end, _, delta, _, _, _ = record_fields(payload, at, end)
        if fault != RecordFault.NONE or delta <= previous or delta > last_delta:
            return False
        previous = delta
        at = record_end
    return at == end
