"""Choice of batches from a header table: which ones can hold requested records, and how they are decoded.

A window of a segment holds few batches or thousands. In numpy each rule would cost a pass with a temporary array, so
one kernel applies all rules. It also checks that offsets increase.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import Codec, HeaderColumn
from kafkalog_spark.kernels.primitives import kernel
from kafkalog_spark.kernels.rows import Limit, UnitColumn

_LAST_CODEC = int(max(Codec))
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
    """First row of `table` (int64[n, len(HeaderColumn)]) whose offsets or record count cannot be right, or n; fills in
    PREVIOUS in all. Offsets rise from batch to batch, after `previous`, and lie in [lowest, highest]."""
    wrong = table.shape[0]
    for i in range(table.shape[0]):
        base, last = table[i, HeaderColumn.BASE_OFFSET], table[i, HeaderColumn.LAST_OFFSET]
        table[i, HeaderColumn.PREVIOUS] = previous
        bad_count = table[i, HeaderColumn.COUNT] < 0 and table[i, HeaderColumn.MAGIC] == 2
        if wrong > i and (base <= previous or last < base or base < lowest or last > highest or bad_count):
            wrong = i
        previous = last
    return wrong


@kernel
def choose(table, hidden, limits, control_records, headers_only, uses_timestamps, max_records, chosen, units):  # type: ignore[no-untyped-def]
    """The batches of `table` that can hold wanted records; provably none is left out (docs/architecture.md, rules).

    hidden: uint8[n], 1 for batches that a read_committed reader does not see; empty when there are none. limits: see
    rows.Limit. control_records, uses_timestamps: 0 or 1. headers_only: 1 when no column asked for lies in records
    alone.
    max_records: a batch is not believed to hold more without being opened. Fills, for each batch kept, a column of
    chosen (int64[len(Choice), n]) and a row of units (int64[n, len(UnitColumn)]; of v2). Returns how many are kept.
    """
    kept = 0
    for i in range(table.shape[0]):
        at, size = table[i, HeaderColumn.POSITION], table[i, HeaderColumn.SIZE]
        base, last, count = (
            table[i, HeaderColumn.BASE_OFFSET],
            table[i, HeaderColumn.LAST_OFFSET],
            table[i, HeaderColumn.COUNT],
        )
        magic, attributes, max_timestamp = (
            table[i, HeaderColumn.MAGIC],
            table[i, HeaderColumn.ATTRIBUTES],
            table[i, HeaderColumn.MAX_TIMESTAMP],
        )
        v2 = magic == 2
        if last < limits[Limit.OFFSET_FROM] or max_timestamp < limits[Limit.TIMESTAMP_FROM]:
            continue
        # what the cleaner leaves of a producer's last batch: a header and no record
        if count == 0 and size == layout.BATCH_OVERHEAD:
            continue
        # the first offset of a wrapper is not in its header: it is opened if it can begin before the end
        if base >= limits[Limit.OFFSET_UNTIL] and count >= 0:
            continue
        log_append = v2 and attributes & layout.ATTRIBUTE_LOG_APPEND_TIME != 0
        if log_append and max_timestamp > limits[Limit.TIMESTAMP_LAST]:
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
        units[kept, UnitColumn.BASE_OFFSET] = base
        units[kept, UnitColumn.LAST_DELTA] = last - base
        units[kept, UnitColumn.COUNT] = count
        units[kept, UnitColumn.BASE_TIMESTAMP] = table[i, HeaderColumn.BASE_TIMESTAMP]
        units[kept, UnitColumn.MAX_TIMESTAMP] = max_timestamp
        units[kept, UnitColumn.LOG_APPEND] = 1 if log_append else 0
        kept += 1
    return np.int64(kept)
