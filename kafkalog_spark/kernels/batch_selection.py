"""Selects batches from a header table: check their order, drop batches without requested records, and choose how
the others are decoded.

One kernel applies all rules in one pass. In numpy, each rule would cost a pass with a temporary array.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import Codec, HeaderColumn
from kafkalog_spark.kernels.primitives import kernel
from kafkalog_spark.kernels.rows import BatchColumn, Limit

_LAST_CODEC = int(max(Codec))
MAX_RECORDS_PER_BYTE = 4
"""Most records per compressed byte that are accepted without opening the batch. Identical records still take about one
byte each, because their offset deltas differ."""


class BatchKind(IntEnum):
    """How a batch is decoded."""

    PLAIN = 0  # v2, uncompressed
    COMPRESSED = 1  # v2, compressed
    MESSAGE = 2  # a single message v0 or v1
    WRAPPER = 3  # a compressed message set v0 or v1
    FROM_HEADER = 4  # v2, not opened: its header gives all requested columns


class SelectionRow(IntEnum):
    """Rows of `selection`, int64[len(SelectionRow), n], which has a column for each selected batch."""

    ROW = 0  # row in the header table
    KIND = 1  # a BatchKind
    START = 2  # byte of the window where the records begin; of a message or wrapper, where it begins itself
    END = 3  # byte of the window after the batch


@kernel
def first_invalid_batch(table, previous, lowest, highest):  # type: ignore[no-untyped-def]
    """Fill in PREVIOUS in every row of `table`, and return the first row with impossible offsets or record count.

    Args:
        table: int64[n, len(HeaderColumn)]. Offsets must increase from row to row.
        previous: Last offset of the batch before the first row.
        lowest: Smallest valid base offset.
        highest: Largest valid last offset.

    Returns:
        The row, or n if all batches are valid.
    """
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
def select_batches(  # type: ignore[no-untyped-def]
    table, excluded, limits, control_records, headers_only, uses_timestamps, max_records, selection, batches
):
    """Select the batches of `table` that can contain requested records. No such batch is dropped.

    Args:
        table: int64[n, len(HeaderColumn)].
        excluded: uint8[n], 1 for each batch that a filter excludes; empty if there is none.
        limits: int64[len(Limit)].
        control_records: 1 if control records are requested, else 0.
        headers_only: 1 if every requested column can be derived from batch headers, else 0.
        uses_timestamps: 1 if timestamps are requested or filtered, else 0.
        max_records: A batch with a higher record count is always opened.
        selection: int64[len(SelectionRow), n]; a column is filled for each selected batch.
        batches: int64[n, len(BatchColumn)]; a row is filled for each selected batch. Only meaningful for v2.

    Returns:
        Number of selected batches.
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
        # The cleaner keeps the header of a producer's last batch, without a record.
        if count == 0 and size == layout.BATCH_OVERHEAD:
            continue
        # `base` of a wrapper (count -1) is its last offset. The first one is not in its header, and may be below the
        # end.
        if base >= limits[Limit.OFFSET_UNTIL] and count >= 0:
            continue
        log_append = v2 and attributes & layout.ATTRIBUTE_LOG_APPEND_TIME != 0
        if log_append and max_timestamp > limits[Limit.TIMESTAMP_LAST]:
            continue
        if v2 and attributes & layout.ATTRIBUTE_CONTROL != 0 and control_records == 0:
            continue
        if excluded.size > 0 and excluded[i] != 0:
            continue
        codec = attributes & layout.ATTRIBUTE_CODEC
        if v2:
            kind = np.int64(BatchKind.PLAIN) if codec == Codec.NONE else np.int64(BatchKind.COMPRESSED)
        else:
            kind = np.int64(BatchKind.MESSAGE) if codec == Codec.NONE else np.int64(BatchKind.WRAPPER)
        is_known = kind == BatchKind.COMPRESSED and codec <= _LAST_CODEC and count == last - base + 1
        is_known = is_known and (uses_timestamps == 0 or log_append)
        # A batch with an implausible count is opened: the decoder then reports that it exceeds the limit on
        # decompressed bytes, or that the count is wrong. Trusting the header could emit rows that do not exist.
        is_plausible = count <= max_records and count <= MAX_RECORDS_PER_BYTE * (size - layout.BATCH_OVERHEAD)
        if headers_only != 0 and is_known and is_plausible:
            kind = np.int64(BatchKind.FROM_HEADER)
        selection[SelectionRow.ROW, kept], selection[SelectionRow.KIND, kept] = i, kind
        selection[SelectionRow.START, kept] = at + layout.RECORDS_AT if v2 else at
        selection[SelectionRow.END, kept] = at + size
        batches[kept, BatchColumn.BASE_OFFSET] = base
        batches[kept, BatchColumn.LAST_DELTA] = last - base
        batches[kept, BatchColumn.COUNT] = count
        batches[kept, BatchColumn.BASE_TIMESTAMP] = table[i, HeaderColumn.BASE_TIMESTAMP]
        batches[kept, BatchColumn.MAX_TIMESTAMP] = max_timestamp
        batches[kept, BatchColumn.LOG_APPEND] = 1 if log_append else 0
        kept += 1
    return np.int64(kept)
