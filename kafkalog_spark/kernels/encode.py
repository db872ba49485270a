"""Encode rows of Arrow columns as the records of v2 batches, in one pass over the rows.

The kernel divides the rows into batches, leaves room for each batch's header before its records, and returns the facts
for the header. The caller writes headers and CRCs, and compresses.

Columns are read-only numpy views of Arrow buffers, because Numba does not convert writable arrays in a tuple. Empty
`offsets` mean that every value is null; an empty validity bitmap means that none is.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import types

from kafkalog_spark.format.layout import BATCH_OVERHEAD, MAX_INT32, NO_TIMESTAMP, FaultCode
from kafkalog_spark.kernels.primitives import copy_bytes, helper, inlined, kernel_for


class BinaryColumn(NamedTuple):
    """Buffers of a binary or string array."""

    offsets: np.ndarray  # int32[n + 1]; empty: every value is null
    data: np.ndarray  # uint8[]
    valid: np.ndarray  # uint8[], a bitmap; empty: no value is null
    first_bit: int  # bit of the bitmap for value 0


class HeadersColumn(NamedTuple):
    """Buffers of an array of header lists. The headers of row i are keys and values lists[i] to lists[i + 1] - 1."""

    lists: np.ndarray  # int32[n + 1]; empty: no row has headers
    valid: np.ndarray  # uint8[], a bitmap; empty: no list is null
    first_bit: int  # bit of the bitmap for row 0
    keys: BinaryColumn
    values: BinaryColumn


class EncodeColumns(NamedTuple):
    """Columns of the records to encode."""

    key: BinaryColumn
    value: BinaryColumn
    headers: HeadersColumn
    timestamps: np.ndarray  # int64[rows], ms; empty: every record has `timestamp_of_all`
    timestamp_of_all: int  # ms
    offsets: np.ndarray  # int64[rows]; empty: consecutive offsets from cursor[NEXT_OFFSET] on


class Fact(IntEnum):
    """Columns of `facts`, int64[n, len(Fact)], which has a row for each batch."""

    START = 0  # byte in `out` where the header is to be written; the records follow it
    END = 1  # byte in `out` after the last record
    COUNT = 2
    BASE_OFFSET = 3
    LAST_OFFSET = 4
    BASE_TIMESTAMP = 5  # ms
    MAX_TIMESTAMP = 6  # ms


class EncodeCursor(IntEnum):
    """Entries of `cursor`, int64[len(EncodeCursor)]: where to resume, and results for the caller."""

    ROW = 0  # in, out: next row to encode
    NEXT_OFFSET = 1  # in, out: lowest offset that the next record may have
    BATCHES = 2  # out: number of filled rows of `facts`
    NEEDED = 3  # out, with NEED_ROOM: size in bytes that `out` must have


class EncodeStatus(FaultCode):
    """Why the kernel returned. From OFFSET_ORDER on, row cursor[ROW] cannot be encoded."""

    DONE = 0
    FULL = 1  # `out` or `facts` is full: the caller must take the batches, then call again
    NEED_ROOM = 2  # as FULL, and the next record is larger than `out`
    OFFSET_ORDER = 10, "its offset does not increase"
    TIMESTAMP_NEGATIVE = 11, "its timestamp is before 1970 (Kafka accepts none below -1 ms)"
    HEADER_KEY_NULL = 12, "a header has no key"
    RECORD_TOO_LARGE = 13, "it takes more than 2^31-1 bytes"


@helper
def zigzag(value):  # type: ignore[no-untyped-def]
    """Return the zigzag form of an int64, as uint64."""
    return np.uint64((value << 1) ^ (value >> 63))


@helper
def varint_size(value):  # type: ignore[no-untyped-def]
    """Return the number of bytes of `value`, an int64, as a zigzag varint."""
    raw = zigzag(value)
    size = 1
    while raw >= np.uint64(0x80):
        raw >>= np.uint64(7)
        size += 1
    return size


@helper
def write_uvarint(out, at, raw):  # type: ignore[no-untyped-def]
    """Write `raw`, a uint64, as an unsigned varint to out[at:], and return the position after it."""
    while raw >= np.uint64(0x80):
        out[at] = np.uint8(raw & np.uint64(0x7F)) | np.uint8(0x80)
        raw >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(raw)
    return at + 1


@helper
def write_varint(out, at, value):  # type: ignore[no-untyped-def]
    """Write `value`, an int64, as a zigzag varint to out[at:], and return the position after it."""
    return write_uvarint(out, at, zigzag(value))


@inlined
def is_valid(bitmap, first_bit, i):  # type: ignore[no-untyped-def]
    """True if value i is not null. An empty bitmap means that no value is null."""
    bit = first_bit + i
    return bitmap.size == 0 or (bitmap[bit >> 3] >> (bit & 7)) & 1 != 0


@inlined
def size_of(column, i):  # type: ignore[no-untyped-def]
    """Return the size in bytes of value i of a BinaryColumn, or -1 for null."""
    if column.offsets.size == 0 or not is_valid(column.valid, column.first_bit, i):
        return np.int64(-1)
    return np.int64(column.offsets[i + 1]) - np.int64(column.offsets[i])


@inlined
def write_sized(out, at, column, i, size):  # type: ignore[no-untyped-def]
    """Write the length of value i of a BinaryColumn and its bytes, if it is not null, and return the position after it.

    size: size_of(column, i).
    """
    at = write_varint(out, at, size)
    if size > 0:
        copy_bytes(out, at, column.data, np.int64(column.offsets[i]), size)
        at += size
    return at


@inlined
def _save(cursor, status, row, next_offset, batch):  # type: ignore[no-untyped-def]
    """Store in `cursor` where encoding resumes, and return the status for the caller."""
    cursor[EncodeCursor.ROW], cursor[EncodeCursor.NEXT_OFFSET], cursor[EncodeCursor.BATCHES] = row, next_offset, batch
    return np.int64(status)


BYTES_IN = types.Array(types.uint8, 1, "C", readonly=True)  # accepts writable arrays, too
BYTES_OUT = types.Array(types.uint8, 1, "C")
INT32_IN = types.Array(types.int32, 1, "C", readonly=True)
INT64_IN = types.Array(types.int64, 1, "C", readonly=True)
BINARY = types.NamedTuple((INT32_IN, BYTES_IN, BYTES_IN, types.int64), BinaryColumn)
_HEADERS = types.NamedTuple((INT32_IN, BYTES_IN, types.int64, BINARY, BINARY), HeadersColumn)
_COLUMNS = types.NamedTuple((BINARY, BINARY, _HEADERS, INT64_IN, types.int64, INT64_IN), EncodeColumns)
_SIGNATURE = types.int64(
    types.int64, _COLUMNS, types.int64, BYTES_OUT, types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C")
)


@kernel_for(_SIGNATURE)
def encode_records(rows, columns, batch_size, out, facts, cursor):  # type: ignore[no-untyped-def]
    """Write batches into `out` from row cursor[ROW] on, until all rows are encoded, or `out` or `facts` is full.

    Args:
        rows: Number of rows.
        columns: EncodeColumns.
        batch_size: Largest size in bytes of a batch with its header. Only a batch of one record may exceed it.
        out: uint8[], of at least `batch_size` bytes.
        facts: int64[n, len(Fact)]; a row is filled for each batch.
        cursor: int64[len(EncodeCursor)].

    Returns:
        An EncodeStatus.
    """
    key, value, headers, timestamps, timestamp_of_all, offsets = columns
    row, next_offset = cursor[EncodeCursor.ROW], cursor[EncodeCursor.NEXT_OFFSET]
    at, batch = 0, 0
    while row < rows:
        if batch == facts.shape[0] or (batch > 0 and at + batch_size > out.size):
            return _save(cursor, EncodeStatus.FULL, row, next_offset, batch)
        start, first = at, row
        at += BATCH_OVERHEAD
        base_offset = offsets[row] if offsets.size > 0 else next_offset
        base_timestamp = timestamps[row] if timestamps.size > 0 else timestamp_of_all
        max_timestamp = base_timestamp
        while row < rows:
            offset = offsets[row] if offsets.size > 0 else next_offset
            timestamp = timestamps[row] if timestamps.size > 0 else timestamp_of_all
            key_size = size_of(key, row)
            value_size = size_of(value, row)
            header, headers_end = np.int64(0), np.int64(0)
            if headers.lists.size > 0 and is_valid(headers.valid, headers.first_bit, row):
                header, headers_end = np.int64(headers.lists[row]), np.int64(headers.lists[row + 1])

            status = np.int64(EncodeStatus.DONE)
            if offset < next_offset:
                status = np.int64(EncodeStatus.OFFSET_ORDER)
            if timestamp < NO_TIMESTAMP:
                status = np.int64(EncodeStatus.TIMESTAMP_NEGATIVE)
            size = (
                1 + varint_size(timestamp - base_timestamp) + varint_size(offset - base_offset)
                + varint_size(key_size) + max(key_size, 0) + varint_size(value_size) + max(value_size, 0)
                + varint_size(headers_end - header)
            )  # fmt: skip
            for h in range(header, headers_end):
                name_size = size_of(headers.keys, h)
                item_size = size_of(headers.values, h)
                size += varint_size(name_size) + name_size + varint_size(item_size) + max(item_size, 0)
                if name_size < 0:
                    status = np.int64(EncodeStatus.HEADER_KEY_NULL)
            if size > MAX_INT32:
                status = np.int64(EncodeStatus.RECORD_TOO_LARGE)
            if status != EncodeStatus.DONE:
                return _save(cursor, status, row, next_offset, batch)

            whole = varint_size(size) + size
            if row > first and (at - start + whole > batch_size or offset - base_offset > MAX_INT32):
                break
            if at + whole > out.size:  # possible only for the first record of a batch: the others fit into batch_size
                cursor[EncodeCursor.NEEDED] = BATCH_OVERHEAD + whole
                return _save(cursor, EncodeStatus.NEED_ROOM, row, next_offset, batch)

            at = write_varint(out, at, size)
            out[at] = 0  # record attributes: none are defined
            at = write_varint(out, at + 1, timestamp - base_timestamp)
            at = write_varint(out, at, offset - base_offset)
            at = write_sized(out, at, key, row, key_size)
            at = write_sized(out, at, value, row, value_size)
            at = write_varint(out, at, headers_end - header)
            for h in range(header, headers_end):
                at = write_sized(out, at, headers.keys, h, size_of(headers.keys, h))
                at = write_sized(out, at, headers.values, h, size_of(headers.values, h))
            max_timestamp = max(max_timestamp, timestamp)
            next_offset = offset + 1
            row += 1
        facts[batch, Fact.START], facts[batch, Fact.END], facts[batch, Fact.COUNT] = start, at, row - first
        facts[batch, Fact.BASE_OFFSET], facts[batch, Fact.LAST_OFFSET] = base_offset, next_offset - 1
        facts[batch, Fact.BASE_TIMESTAMP], facts[batch, Fact.MAX_TIMESTAMP] = base_timestamp, max_timestamp
        batch += 1
    return _save(cursor, EncodeStatus.DONE, row, next_offset, batch)
