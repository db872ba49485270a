"""Walk the batch headers of a buffer: what decides which batches are worth a CRC, a decompression or a record."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import Codec, H
from kafkalog_spark.kernels.primitives import crc_of, kernel, read_i16, read_i32, read_i64, read_u32, varint32
from kafkalog_spark.kernels.rows import L, U

SMALL_BATCH = 1024
"""Bytes up to which the sweep checks the CRC itself: a call of crc32c costs 0.2 us, as much as 400 bytes here."""


_SMALLEST_V0, _SMALLEST_V1 = layout.LEGACY_MIN_SIZE
_LAST_CODEC = int(max(Codec))

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
    """Fill `table` (int64[n, len(H)], see layout.H) with the headers of the whole batches in buffer[start:end].

    POSITION is that in the buffer. Returns (rows filled, position of the first batch not filled in, SweepStatus).
    The CRC of batches up to SMALL_BATCH bytes is checked, that of larger ones is left to the caller (CRC_SEEN).
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
        row[H.POSITION] = at
        row[H.SIZE] = size
        row[H.BASE_OFFSET] = offset
        row[H.MAGIC] = magic
        if magic == 2:
            row[H.LAST_OFFSET] = offset + read_i32(buffer, at + layout.LAST_OFFSET_DELTA_AT)
            row[H.ATTRIBUTES] = read_i16(buffer, at + layout.ATTRIBUTES_AT)
            row[H.CRC] = read_u32(buffer, at + layout.CRC_AT)
            row[H.LEADER_EPOCH] = read_i32(buffer, at + layout.LEADER_EPOCH_AT)
            row[H.BASE_TIMESTAMP] = read_i64(buffer, at + layout.BASE_TIMESTAMP_AT)
            row[H.MAX_TIMESTAMP] = read_i64(buffer, at + layout.MAX_TIMESTAMP_AT)
            row[H.PRODUCER_ID] = read_i64(buffer, at + layout.PRODUCER_ID_AT)
            row[H.PRODUCER_EPOCH] = read_i16(buffer, at + layout.PRODUCER_EPOCH_AT)
            row[H.BASE_SEQUENCE] = read_i32(buffer, at + layout.BASE_SEQUENCE_AT)
            row[H.COUNT] = read_i32(buffer, at + layout.RECORD_COUNT_AT)
        else:
            attributes = np.int64(buffer[at + layout.LEGACY_ATTRIBUTES_AT])
            timestamp = np.int64(layout.NO_TIMESTAMP)
            if magic == 1:
                timestamp = read_i64(buffer, at + layout.LEGACY_TIMESTAMP_AT)
            row[H.LAST_OFFSET] = offset
            row[H.ATTRIBUTES] = attributes
            row[H.CRC] = read_u32(buffer, at + layout.LEGACY_CRC_AT)
            row[H.LEADER_EPOCH] = layout.NO_LEADER_EPOCH
            row[H.BASE_TIMESTAMP] = timestamp
            row[H.MAX_TIMESTAMP] = timestamp
            row[H.PRODUCER_ID] = layout.NO_PRODUCER_ID
            row[H.PRODUCER_EPOCH] = layout.NO_PRODUCER_EPOCH
            row[H.BASE_SEQUENCE] = layout.NO_SEQUENCE
            row[H.COUNT] = 1 if (attributes & layout.ATTRIBUTE_CODEC) == 0 else -1
        row[H.CRC_SEEN] = 0
        if size <= SMALL_BATCH:
            if magic == 2:
                crc = crc_of(buffer, at + layout.ATTRIBUTES_AT, at + size, crc32c_table)
            else:
                crc = crc_of(buffer, at + layout.MAGIC_AT, at + size, crc32_table)
            if crc != row[H.CRC]:
                return rows, at, np.int64(SweepStatus.BAD_CRC)
            row[H.CRC_SEEN] = 1
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


# What becomes of the batches of a header table: do offsets rise, which batches can hold wanted records, and how are
# they decoded. A window of a segment holds few batches or thousands; in numpy each rule would cost a pass with a
# temporary of its own.

RECORDS_A_BYTE = 4
"""Records that a byte of a compressed batch is believed to hold. Each has another offset delta, so even records that
are equal otherwise take about a byte each."""


class BatchKind(IntEnum):
    """How a batch is decoded."""

    PLAIN = 0  # v2 as it lies
    COMPRESSED = 1  # v2
    MESSAGE = 2  # v0, v1
    WRAPPER = 3  # v0, v1
    FROM_HEADER = 4  # v2 that need not be opened: its header tells the columns asked for


class Choice(IntEnum):
    """Rows of `chosen`: row in the table, BatchKind, where the batch's records (or whole message) lie in the window."""

    ROW = 0
    KIND = 1
    START = 2
    END = 3


@kernel
def first_out_of_order(table, previous, lowest, highest):  # type: ignore[no-untyped-def]
    """First row of `table` (int64[n, len(H)]) whose offsets or record count cannot be right, or n; fills in PREVIOUS in
    all. Offsets rise from batch to batch, after `previous`, and lie in [lowest, highest]."""
    wrong = table.shape[0]
    for i in range(table.shape[0]):
        base, last = table[i, H.BASE_OFFSET], table[i, H.LAST_OFFSET]
        table[i, H.PREVIOUS] = previous
        bad_count = table[i, H.COUNT] < 0 and table[i, H.MAGIC] == 2
        if wrong > i and (base <= previous or last < base or base < lowest or last > highest or bad_count):
            wrong = i
        previous = last
    return wrong


@kernel
def choose(table, hidden, limits, control_records, headers_only, uses_timestamps, max_records, chosen, units):  # type: ignore[no-untyped-def]
    """The batches of `table` that can hold wanted records; provably none is left out (docs/architecture.md, rules).

    hidden: uint8[n], 1 for batches that a read_committed reader does not see; empty when there are none. limits: see
    rows.L. control_records, uses_timestamps: 0 or 1. headers_only: 1 when no column asked for lies in records alone.
    max_records: a batch is not believed to hold more without being opened.
    Fills, for each batch kept, a column of chosen (int64[len(Choice), n]) and a row of units (int64[n, len(U)]; of v2).
    Returns how many are kept.
    """
    kept = 0
    for i in range(table.shape[0]):
        at, size = table[i, H.POSITION], table[i, H.SIZE]
        base, last, count = table[i, H.BASE_OFFSET], table[i, H.LAST_OFFSET], table[i, H.COUNT]
        magic, attributes, max_timestamp = table[i, H.MAGIC], table[i, H.ATTRIBUTES], table[i, H.MAX_TIMESTAMP]
        v2 = magic == 2
        if last < limits[L.OFFSET_FROM] or max_timestamp < limits[L.TIMESTAMP_FROM]:
            continue
        # what the cleaner leaves of a producer's last batch: a header and no record
        if count == 0 and size == layout.BATCH_OVERHEAD:
            continue
        # the first offset of a wrapper is not in its header: it is opened if it can begin before the end
        if base >= limits[L.OFFSET_UNTIL] and count >= 0:
            continue
        log_append = v2 and attributes & layout.ATTRIBUTE_LOG_APPEND_TIME != 0
        if log_append and max_timestamp > limits[L.TIMESTAMP_LAST]:
            continue
        if v2 and attributes & layout.ATTRIBUTE_CONTROL != 0 and control_records == 0:
            continue
        if hidden.size > 0 and hidden[i] != 0:
            continue
        codec = attributes & layout.ATTRIBUTE_CODEC
        if v2:
            kind = np.int64(BatchKind.PLAIN) if codec == Codec.NONE else np.int64(BatchKind.COMPRESSED)
        else:
            kind = np.int64(BatchKind.MESSAGE) if codec == Codec.NONE else np.int64(BatchKind.WRAPPER)
        known = kind == BatchKind.COMPRESSED and codec <= _LAST_CODEC and count == last - base + 1
        known = known and (uses_timestamps == 0 or log_append)
        # What could not be decompressed within the limit is opened: that says why. And so is a batch with more records
        # than its bytes are likely to hold: opening costs time, believing could give rows that do not exist.
        likely = count <= max_records and count <= RECORDS_A_BYTE * (size - layout.BATCH_OVERHEAD)
        if headers_only != 0 and known and likely:
            kind = np.int64(BatchKind.FROM_HEADER)
        chosen[Choice.ROW, kept], chosen[Choice.KIND, kept] = i, kind
        chosen[Choice.START, kept] = at + layout.RECORDS_AT if v2 else at
        chosen[Choice.END, kept] = at + size
        units[kept, U.BASE_OFFSET] = base
        units[kept, U.LAST_DELTA] = last - base
        units[kept, U.COUNT] = count
        units[kept, U.BASE_TIMESTAMP] = table[i, H.BASE_TIMESTAMP]
        units[kept, U.MAX_TIMESTAMP] = max_timestamp
        units[kept, U.LOG_APPEND] = 1 if log_append else 0
        kept += 1
    return np.int64(kept)
