"""Walk the batch headers of a buffer: what decides which batches are worth a CRC, a decompression or a record."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from kafkalog_spark.log.kernels.primitives import crc_of, kernel, read_i16, read_i32, read_i64, read_u32, varint32

SMALL_BATCH = 1024
"""Bytes. Up to here the sweep checks the CRC itself: a call of the crc32c package costs 0.2 us, as much as 400 bytes
here."""


class SweepStatus(IntEnum):
    """Why the sweep stopped, always at the start of a batch."""

    OUT_OF_BYTES = 0  # the next batch is not whole in the buffer
    TABLE_FULL = 1
    BAD_LENGTH = 2
    BAD_MAGIC = 3
    BAD_CRC = 4


@kernel
def sweep(buffer, start, end, table, crc32c_table, crc32_table):  # type: ignore[no-untyped-def]
    """Fill `table` (int64[n, len(H)], see layout.H) with the headers of the whole batches in buffer[start:end].

    POSITION is that in the buffer. Returns (rows filled, position of the first batch not filled in, SweepStatus).
    The CRC of batches up to SMALL_BATCH bytes is checked, that of larger ones is left to the caller (CRC_SEEN).
    """
    rows = 0
    at = start
    while True:
        if end - at < 17:
            return rows, at, 0
        if rows >= table.shape[0]:
            return rows, at, 1
        size = read_i32(buffer, at + 8) + 12
        magic = np.int64(buffer[at + 16])
        if magic > 2:
            return rows, at, 3
        smallest = 61 if magic == 2 else (34 if magic == 1 else 26)
        if size < smallest:
            return rows, at, 2
        if size > end - at:
            return rows, at, 0
        offset = read_i64(buffer, at)
        row = table[rows]
        row[0] = at
        row[1] = size
        row[2] = offset
        row[4] = magic
        if magic == 2:
            row[3] = offset + read_i32(buffer, at + 23)
            row[5] = read_i16(buffer, at + 21)
            row[6] = read_u32(buffer, at + 17)
            row[7] = read_i32(buffer, at + 12)
            row[8] = read_i64(buffer, at + 27)
            row[9] = read_i64(buffer, at + 35)
            row[10] = read_i64(buffer, at + 43)
            row[11] = read_i16(buffer, at + 51)
            row[12] = read_i32(buffer, at + 53)
            row[13] = read_i32(buffer, at + 57)
        else:
            attributes = np.int64(buffer[at + 17])
            timestamp = read_i64(buffer, at + 18) if magic == 1 else np.int64(-1)
            row[3] = offset
            row[5] = attributes
            row[6] = read_u32(buffer, at + 12)
            row[7] = -1
            row[8] = timestamp
            row[9] = timestamp
            row[10] = -1
            row[11] = -1
            row[12] = -1
            row[13] = 1 if (attributes & 7) == 0 else -1
        row[14] = 0
        if size <= SMALL_BATCH:
            if magic == 2:
                crc = crc_of(buffer, at + 21, at + size, crc32c_table)
            else:
                crc = crc_of(buffer, at + 16, at + size, crc32_table)
            if crc != row[6]:
                return rows, at, 4
            row[14] = 1
        rows += 1
        at += size


@kernel
def end_of_records(payload, start, end, count):  # type: ignore[no-untyped-def]
    """Position after `count` v2 records in payload[start:end]; -1 when they do not all lie there, -2 for a bad length.

    Lets the decompression of a batch stop as soon as its own record count has been served.
    """
    at = start
    for _ in range(count):
        size, body = varint32(payload, at, end)
        if body > end:
            return np.int64(-1)
        if size < 0:
            return np.int64(-2)
        if size > end - body:
            return np.int64(-1)
        at = body + size
    return at
