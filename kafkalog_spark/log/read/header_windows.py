"""Batches of a segment as header tables (`layout.HeaderColumn`), one window of bytes at a time, with all CRCs checked.

A kernel sweeps a large file at the speed of the disk. Plain Python reads a small one, so that Numba is not loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import batch_header, layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.crc32c import crc32c
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.store.interface import RangeReader

if TYPE_CHECKING:
    from kafkalog_spark.log.codecs.scratch import Scratch


HeaderTable = npt.NDArray[np.int64]
"""Header table, int64[n, len(HeaderColumn)]: a row for each batch, in the order of the file."""

_WINDOW_BYTES = 8 << 20
"""Bytes read at once: large enough to make the fixed cost of a kernel call and a table negligible."""
_PLAIN_BELOW = 1 << 20  # bytes; below this, plain Python is faster than loading Numba
_TABLE_ROWS = 32 << 10


@dataclass(frozen=True, slots=True)
class Window:
    """Good batches of a segment, and the bytes that they were found in.

    Attributes:
        table: Header table of the batches, with positions in the file.
        data: Bytes of the file from position `start` on.
        start: Position of `data` in the file.
    """

    table: HeaderTable
    data: memoryview
    start: int

    def batch(self, row: int) -> memoryview:
        """Return the bytes of the batch in a row of the table."""
        position = int(self.table[row, HeaderColumn.POSITION]) - self.start
        return self.data[position : position + int(self.table[row, HeaderColumn.SIZE])]

    @property
    def size(self) -> int:
        """Total size of the batches in bytes."""
        return int(self.table[:, HeaderColumn.SIZE].sum())

    @property
    def starts(self) -> HeaderTable:
        """int64[n]: the position in `data` at which each batch begins."""
        starts: HeaderTable = self.table[:, HeaderColumn.POSITION] - self.start
        return starts

    def records(self, first: int, end: int) -> tuple[HeaderTable, HeaderTable]:
        """Return (starts, ends): the positions in `data` of the records of the v2 batches in rows [first, end)."""
        starts = self.starts[first:end]
        return starts + layout.RECORDS_AT, starts + self.table[first:end, HeaderColumn.SIZE]

    @property
    def payload(self) -> npt.NDArray[np.uint8]:
        """`data` as a read-only array for the kernels."""
        return np.frombuffer(self.data.toreadonly(), np.uint8)

    def first(self, rows: int) -> Window:
        """Return a window of the first `rows` batches."""
        return Window(self.table[:rows], self.data, self.start)

    def header(self, row: int) -> BatchHeader:
        return BatchHeader(*self.table[row, : len(BatchHeader._fields)].tolist())


class CheckedWindow(NamedTuple):
    """A window of good batches.

    Attributes:
        window: The window.
        error: What is wrong with the batch after them; None if the next window continues, or the batches end.
    """

    window: Window
    error: KafkalogError | None


def batch_end(row: HeaderTable) -> int:
    """Return the position of the byte after a batch, from its row of a header table."""
    return int(row[HeaderColumn.POSITION] + row[HeaderColumn.SIZE])


def header_windows(
    file: RangeReader, end: int, start: int = 0, buffer: Scratch | None = None
) -> Iterator[CheckedWindow]:
    """Yield windows of the good batches between the positions `start` and `end` of an open file.

    The bytes of a window are overwritten when the next one is read. If the batches end before `end`, the last window
    has an error with the position of the bad batch. The order of offsets is not checked.

    Args:
        file: The open file.
        end: Position at which to stop.
        start: Position of the first batch.
        buffer: Buffer for the bytes. It grows for a batch that is larger than a window, and shrinks afterwards. If it
            is None, a small file is read at once, and only the header is read of a batch that is larger than a window.

    Raises:
        OSError: If the file cannot be read.
    """
    if buffer is None and end - start < _PLAIN_BELOW:
        yield _parse_window(file, start, end)
    else:
        yield from _sweep_windows(file, start, end, buffer)


def _parse_window(file: RangeReader, start: int, end: int) -> CheckedWindow:
    """Return all batches as one window, parsed in plain Python."""
    data = memoryview(file.read(start, end - start))
    rows, position = [], 0
    wrong: KafkalogError | None = None
    try:
        while position < len(data):
            batch_header.parse_complete_batch_prefix(data, position, len(data) - position, start + position)
            header = batch_header.parse_header(data, position, start + position)
            batch_header.check_crc(header, data[position : position + header.size])
            rows.append((*header, 1, 0))
            position += header.size
    except (CorruptBatch, UnsupportedFormat) as error:
        wrong = error
    table = np.array(rows, np.int64).reshape(-1, len(HeaderColumn))
    return CheckedWindow(Window(table, data, start), wrong)


def _sweep_windows(file: RangeReader, start: int, end: int, buffer: Scratch | None) -> Iterator[CheckedWindow]:
    """Yield windows whose headers are collected by the kernel `sweep`."""
    from kafkalog_spark.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
    from kafkalog_spark.kernels.sweep import SweepStatus, sweep
    from kafkalog_spark.log.codecs.scratch import Scratch  # with the codecs

    wants_large_batches = buffer is not None
    buffer = buffer or Scratch(min(_WINDOW_BYTES, max(end - start, 1)))
    window_size = buffer.data.size
    table = np.empty((_TABLE_ROWS, len(HeaderColumn)), np.int64)
    position = start
    large_batch = 0  # size of the batch at `position`, if it is larger than a window
    wrong: KafkalogError | None
    try:
        while position < end:
            read_size = min(max(window_size, large_batch), end - position)
            large_batch = 0
            filled = file.read_into(position, buffer.room(0, read_size))
            if filled < read_size:  # the file became shorter
                end = position + filled
            frozen, view = buffer.read_only(), buffer.view
            swept = 0  # bytes of the window in complete batches
            while True:  # once for each full table
                rows, swept_to, status = sweep(frozen, swept, filled, table, CRC32C_TABLE, CRC32_TABLE)
                swept = int(swept_to)
                good_count, wrong = check_remaining_crcs(table[:rows], view, position)
                good = table[:good_count].copy()
                good[:, HeaderColumn.POSITION] += position
                if wrong is None and status not in (SweepStatus.OUT_OF_BYTES, SweepStatus.TABLE_FULL):
                    wrong = bad_batch_error(view, swept, filled, position + swept)
                if len(good) or wrong is not None:
                    yield CheckedWindow(Window(good, view[:filled], position), wrong)
                if wrong is not None:
                    return
                if status != SweepStatus.TABLE_FULL:
                    break
            position += swept
            if position < end and (swept == 0 or position + (filled - swept) >= end):
                # The rest holds no whole batch: a batch that is larger than the buffer begins here, or the file ends.
                try:
                    header = batch_header.read_batch_header(
                        file.read, position, end, batch_header.MAX_UNCHECKED_BYTES if wants_large_batches else 0
                    )
                except (CorruptBatch, UnsupportedFormat) as error:
                    yield CheckedWindow(Window(table[:0], view[:0], position), error)
                    return
                if wants_large_batches:
                    large_batch = header.size
                else:
                    head = memoryview(file.read(position, layout.RECORDS_AT))
                    yield CheckedWindow(Window(np.array([(*header, 1, 0)], np.int64), head, position), None)
                    position = header.end
    finally:
        buffer.shrink(window_size)


def check_remaining_crcs(table: HeaderTable, data: memoryview, start: int) -> tuple[int, CorruptBatch | None]:
    """Check the CRCs of large batches, which the kernel `sweep` does not check.

    Args:
        table: Header table, with positions in `data`.
        data: Bytes of the batches.
        start: Position of `data` in the file.

    Returns:
        The number of rows before the first wrong CRC, and the error for that batch; len(table) and None if all are
        right.
    """
    unchecked = np.flatnonzero(table[:, HeaderColumn.CRC_SEEN] == 0)
    columns = [HeaderColumn.POSITION, HeaderColumn.SIZE, HeaderColumn.MAGIC, HeaderColumn.CRC]
    for row, (at, size, magic, stored) in zip(unchecked.tolist(), table[unchecked][:, columns].tolist(), strict=True):
        if magic == 2:
            computed = crc32c(data[at + layout.ATTRIBUTES_AT : at + size])
        else:
            computed = batch_header.compute_crc(data[at : at + size], magic)
        if computed != stored:
            text = batch_header.crc_text(magic, stored, computed)
            offset = int(table[row, HeaderColumn.BASE_OFFSET])
            return row, CorruptBatch(text, position=start + at, offset=offset)
    return len(table), None


def bad_batch_error(data: memoryview, at: int, filled: int, position: int) -> KafkalogError:
    """Return the error for the batch at which the kernel `sweep` stopped before the end of the bytes.

    Args:
        data: Bytes that were swept.
        at: Position of the batch in `data`.
        filled: Number of valid bytes in `data`.
        position: Position of the batch in the file.
    """
    try:
        size, magic = batch_header.parse_complete_batch_prefix(data, at, filled - at, position)
        batch_header.check_crc(batch_header.parse_header(data, at, position), data[at : at + size])
    except (CorruptBatch, UnsupportedFormat) as error:
        return error
    return CorruptBatch(f"no batch of magic {magic}", position=position)
