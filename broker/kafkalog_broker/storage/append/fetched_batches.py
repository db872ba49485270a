"""Parsing and checking of the batches in a Fetch response that a leader has sent."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import check_crc, parse_header, parse_prefix
from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64, HeaderColumn
from kafkalog_spark.log.read.header_windows import HeaderTable, Window, bad_batch_error, check_remaining_crcs

_PLAIN_BELOW = 64 << 10
"""Size in bytes below which batches are parsed in plain Python, so that Numba need not be loaded."""
_TABLE_ROWS = 4096  # largest number of batches that one call of the kernel finds


def parse_fetched_batches(data: memoryview) -> Window:
    """Parse the batches, of any format, and check their CRCs, offsets and leader epochs.

    A batch that is cut short at the end is ignored, because a leader limits the size of its responses. Thread-safe;
    large data is checked without the interpreter lock.

    Raises:
        CorruptBatch, UnsupportedFormat: With the position in `data`.
    """
    if len(data) < _PLAIN_BELOW:
        table = _parse_in_python(data)
    else:
        table, wrong = sweep_batches(data)
        if wrong is not None:
            raise wrong
    _check_order(table)
    return Window(table, data, 0)


def _parse_in_python(data: memoryview) -> HeaderTable:
    rows = []
    at = 0
    while len(data) - at > layout.MAGIC_AT:
        size, _ = parse_prefix(data, at, at)
        if size > len(data) - at:
            break
        header = parse_header(data, at, at)
        check_crc(header, data[at : at + size])
        if header.last_offset > MAX_INT64:
            raise _out_of_range(header.base_offset, header.last_offset, header.leader_epoch, at)
        rows.append((*header, 1, 0))
        at += size
    return np.array(rows, np.int64).reshape(-1, len(HeaderColumn))


def sweep_batches(data: memoryview) -> tuple[HeaderTable, KafkalogError | None]:
    """Return the header table of the whole batches at the beginning of `data`, and the error for the batch after them.

    The error is None if only a cut batch, or nothing, follows. Loads Numba.
    """
    from kafkalog_spark.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
    from kafkalog_spark.kernels.sweep import SweepStatus, sweep

    frozen = np.frombuffer(data.toreadonly(), np.uint8)
    tables: list[HeaderTable] = []
    at = 0
    status = SweepStatus.TABLE_FULL
    wrong: KafkalogError | None = None
    while status == SweepStatus.TABLE_FULL and wrong is None:
        table = np.empty((_TABLE_ROWS, len(HeaderColumn)), np.int64)
        rows, swept_to, status = sweep(frozen, at, len(data), table, CRC32C_TABLE, CRC32_TABLE)
        at = int(swept_to)
        good, wrong = check_remaining_crcs(table[:rows], data, 0)
        if wrong is None and status not in (SweepStatus.OUT_OF_BYTES, SweepStatus.TABLE_FULL):
            wrong = bad_batch_error(data, at, len(data), at)
        tables.append(table[:good])
    return np.concatenate(tables), wrong


def _check_order(table: HeaderTable) -> None:
    base_offsets, epochs = table[:, HeaderColumn.BASE_OFFSET], table[:, HeaderColumn.LEADER_EPOCH]
    wrong = (
        (base_offsets < 0) | (table[:, HeaderColumn.LAST_OFFSET] == MAX_INT64) | (epochs < -1) | (epochs == MAX_INT32)
    )
    if wrong.any():
        row = table[int(np.argmax(wrong))]
        raise _out_of_range(
            int(row[HeaderColumn.BASE_OFFSET]),
            int(row[HeaderColumn.LAST_OFFSET]),
            int(row[HeaderColumn.LEADER_EPOCH]),
            int(row[HeaderColumn.POSITION]),
        )
    previous = np.concatenate((table[:1, HeaderColumn.BASE_OFFSET] - 1, table[:-1, HeaderColumn.LAST_OFFSET]))
    wrong = (table[:, HeaderColumn.BASE_OFFSET] <= previous) | (
        table[:, HeaderColumn.LAST_OFFSET] < table[:, HeaderColumn.BASE_OFFSET]
    )
    if wrong.any():
        row = int(np.argmax(wrong))
        base, last = int(table[row, HeaderColumn.BASE_OFFSET]), int(table[row, HeaderColumn.LAST_OFFSET])
        raise CorruptBatch(
            f"the batch with offsets {base} to {last} follows offset {int(previous[row])}",
            position=int(table[row, HeaderColumn.POSITION]),
            offset=base,
        )


def _out_of_range(base: int, last: int, epoch: int, position: int) -> CorruptBatch:
    """Return the error for a batch after which no record could be appended, or no leader elected."""
    return CorruptBatch(
        f"the batch has offsets {base} to {last} and leader epoch {epoch}, expected offsets from 0 to 2^63-2 and an "
        "epoch from -1 to 2^31-2",
        position=position,
        offset=base,
    )
