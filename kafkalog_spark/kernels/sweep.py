"""Walk the batch headers in a buffer into a header table, and check the CRC of small batches."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.kernels.primitives import crc_of, kernel, read_i16, read_i32, read_i64, read_u32

SMALL_BATCH = 1024
"""Size in bytes up to which the sweep checks the CRC itself: for such batches a call of the library costs more."""

_SMALLEST_V0, _SMALLEST_V1 = layout.LEGACY_MIN_SIZE


class SweepStatus(IntEnum):
    """Why the sweep stopped, always at the start of a batch."""

    OUT_OF_BYTES = 0  # the buffer ends before the next batch does
    TABLE_FULL = 1
    BAD_LENGTH = 2
    BAD_MAGIC = 3
    BAD_CRC = 4


@kernel
def sweep(buffer, start, end, table, crc32c_table, crc32_table):  # type: ignore[no-untyped-def]
    """Fill `table` with the headers of the complete batches in buffer[start:end].

    The CRC of batches of up to SMALL_BATCH bytes is checked; for larger ones CRC_SEEN stays 0, and the caller checks.

    Args:
        buffer: uint8[].
        start: Byte at which the first batch begins.
        end: Byte after the readable bytes.
        table: int64[n, len(HeaderColumn)]. POSITION is relative to the buffer; PREVIOUS is not filled.
        crc32c_table: primitives.CRC32C_TABLE.
        crc32_table: primitives.CRC32_TABLE.

    Returns:
        (number of filled rows, position in the buffer of the first batch without a row, a SweepStatus)
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
