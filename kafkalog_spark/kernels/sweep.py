"""Walk the batch headers of a buffer: what decides which batches are worth a CRC, a decompression or a record."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.kernels.primitives import crc_of, kernel, read_i16, read_i32, read_i64, read_u32, varint32

SMALL_BATCH = 1024
"""Bytes up to which the sweep checks the CRC itself: a call of crc32c costs 0.2 us, as much as 400 bytes here."""


_SMALLEST_V0, _SMALLEST_V1 = layout.LEGACY_MIN_SIZE

NOT_WHOLE = -1
BAD_RECORD_LENGTH = -2  # result of end_of_records where the records do not end


class SweepStatus(IntEnum):
    """Why the sweep stopped, always at the start of a batch."""

    OUT_OF_BYTES = 0  # the next batch is not whole in the buffer
    TABLE_FULL = 1
    BAD_LENGTH = 2
    BAD_MAGIC = 3
    BAD_CRC = 4


@kernel
def sweep(buffer, start, end, table, crc32c_table, crc32_table):  # type: ignore[no-untyped-def]
    """Fill `table` (int64[n, len(HeaderColumn)], see layout.HeaderColumn) with the headers of the whole batches in
    buffer[start:end].

    POSITION is that in the buffer. Returns (rows filled, position of the first batch not filled in, SweepStatus). The
    CRC of batches up to SMALL_BATCH bytes is checked, that of larger ones is left to the caller (CRC_SEEN).
    """
    rows = 0
    at = start
    while True:
        if end - at <= layout.MAGIC_AT:
            return rows, at, np.int64(SweepStatus.OUT_OF_BYTES)
        if rows >= table.shape[0]:
            return rows, at, np.int64(SweepStatus.TABLE_FULL)
        size = read_i32(buffer, at + layout.LENGTH_AT) + layout.LOG_OVERHEAD
        magic = np.int64(buffer[at + layout.MAGIC_AT])
        if magic > 2:
            return rows, at, np.int64(SweepStatus.BAD_MAGIC)
        smallest = layout.BATCH_OVERHEAD if magic == 2 else (_SMALLEST_V1 if magic == 1 else _SMALLEST_V0)
        if size < smallest:
            return rows, at, np.int64(SweepStatus.BAD_LENGTH)
        if size > end - at:
            return rows, at, np.int64(SweepStatus.OUT_OF_BYTES)
        offset = read_i64(buffer, at + layout.OFFSET_AT)
        row = table[rows]
        row[HeaderColumn.POSITION] = at
        row[HeaderColumn.SIZE] = size
        row[HeaderColumn.BASE_OFFSET] = offset
        row[HeaderColumn.MAGIC] = magic
        if magic == 2:
            row[HeaderColumn.LAST_OFFSET] = offset + read_i32(buffer, at + layout.LAST_OFFSET_DELTA_AT)
            row[HeaderColumn.ATTRIBUTES] = read_i16(buffer, at + layout.ATTRIBUTES_AT)
            row[HeaderColumn.CRC] = read_u32(buffer, at + layout.CRC_AT)
            row[HeaderColumn.LEADER_EPOCH] = read_i32(buffer, at + layout.LEADER_EPOCH_AT)
            row[HeaderColumn.BASE_TIMESTAMP] = read_i64(buffer, at + layout.BASE_TIMESTAMP_AT)
            row[HeaderColumn.MAX_TIMESTAMP] = read_i64(buffer, at + layout.MAX_TIMESTAMP_AT)
            row[HeaderColumn.PRODUCER_ID] = read_i64(buffer, at + layout.PRODUCER_ID_AT)
            row[HeaderColumn.PRODUCER_EPOCH] = read_i16(buffer, at + layout.PRODUCER_EPOCH_AT)
            row[HeaderColumn.BASE_SEQUENCE] = read_i32(buffer, at + layout.BASE_SEQUENCE_AT)
            row[HeaderColumn.COUNT] = read_i32(buffer, at + layout.RECORD_COUNT_AT)
        else:
            attributes = np.int64(buffer[at + layout.LEGACY_ATTRIBUTES_AT])
            timestamp = np.int64(layout.NO_TIMESTAMP)
            if magic == 1:
                timestamp = read_i64(buffer, at + layout.LEGACY_TIMESTAMP_AT)
            row[HeaderColumn.LAST_OFFSET] = offset
            row[HeaderColumn.ATTRIBUTES] = attributes
            row[HeaderColumn.CRC] = read_u32(buffer, at + layout.LEGACY_CRC_AT)
            row[HeaderColumn.LEADER_EPOCH] = layout.NO_LEADER_EPOCH
            row[HeaderColumn.BASE_TIMESTAMP] = timestamp
            row[HeaderColumn.MAX_TIMESTAMP] = timestamp
            row[HeaderColumn.PRODUCER_ID] = layout.NO_PRODUCER_ID
            row[HeaderColumn.PRODUCER_EPOCH] = layout.NO_PRODUCER_EPOCH
            row[HeaderColumn.BASE_SEQUENCE] = layout.NO_SEQUENCE
            row[HeaderColumn.COUNT] = 1 if (attributes & layout.ATTRIBUTE_CODEC) == 0 else -1
        row[HeaderColumn.CRC_SEEN] = 0
        if size <= SMALL_BATCH:
            if magic == 2:
                crc = crc_of(buffer, at + layout.ATTRIBUTES_AT, at + size, crc32c_table)
            else:
                crc = crc_of(buffer, at + layout.MAGIC_AT, at + size, crc32_table)
            if crc != row[HeaderColumn.CRC]:
                return rows, at, np.int64(SweepStatus.BAD_CRC)
            row[HeaderColumn.CRC_SEEN] = 1
        rows += 1
        at += size


@kernel
def end_of_records(payload, start, end, count):  # type: ignore[no-untyped-def]
    """Position after `count` v2 records in payload[start:end]; NOT_WHOLE or BAD_RECORD_LENGTH. Lets the decompression
    of a batch stop as soon as its own record count has been served."""
    at = start
    for _ in range(count):
        size, body = varint32(payload, at, end)
        if body > end:
            return np.int64(NOT_WHOLE)
        if size < 0:
            return np.int64(BAD_RECORD_LENGTH)
        if size > end - body:
            return np.int64(NOT_WHOLE)
        at = body + size
    return at
