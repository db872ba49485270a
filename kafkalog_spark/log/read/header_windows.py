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


Table = npt.NDArray[np.int64]


_WINDOW = 8 << 20
"""Bytes read at once: large enough to make the fixed cost of a kernel call and a table negligible."""


_PLAIN_BELOW = 1 << 20  # bytes; below this, plain Python is faster than loading Numba


_TABLE_ROWS = 32 << 10


@dataclass(frozen=True, slots=True)
class Window:
    """Good batches of a segment, and the bytes that they were found in.

    table: int64[n, len(HeaderColumn)], with positions in the file. data: the bytes of the file from position `start`.
    """

    table: Table
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
    def starts(self) -> Table:
        """int64[n]: the position in `data` at which each batch begins."""
        starts: Table = self.table[:, HeaderColumn.POSITION] - self.start
        return starts

    def records(self, first: int, end: int) -> tuple[Table, Table]:
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
    """A window of good batches. error: what is wrong with the batch behind them, None if the next window continues."""

    window: Window
    error: KafkalogError | None


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
        buffer: Buffer for the bytes. It grows for a batch that is larger than a window, and shrinks afterwards. Without
            one, a small file is read at once, and of a batch that is larger than a window only the header is read.

    Raises:
        OSError: If the file cannot be read.
    """
    if buffer is None and end - start < _PLAIN_BELOW:
        return _plain_windows(file, start, end)
    return _swept_windows(file, start, end, buffer)


def _plain_windows(file: RangeReader, start: int, end: int) -> Iterator[CheckedWindow]:
    """Yield all batches as one window, in plain Python."""
    data = memoryview(file.read(start, end - start))
    rows, position = [], 0
    wrong: KafkalogError | None = None
    try:
        while position < len(data):
            batch_header.whole_batch(data, position, len(data) - position, start + position)
            header = batch_header.parse_header(data, position, start + position)
            batch_header.check_crc(header, data[position : position + header.size])
            rows.append((*header, 1, 0))
            position += header.size
    except (CorruptBatch, UnsupportedFormat) as error:
        wrong = error
    table = np.array(rows, np.int64).reshape(-1, len(HeaderColumn))
    yield CheckedWindow(Window(table, data, start), wrong)


def _swept_windows(file: RangeReader, start: int, end: int, buffer: Scratch | None = None) -> Iterator[CheckedWindow]:
    from kafkalog_spark.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
    from kafkalog_spark.kernels.sweep import SweepStatus, sweep
    from kafkalog_spark.log.codecs.scratch import Scratch  # with the codecs

    wants_bytes = buffer is not None
    buffer = buffer or Scratch(min(_WINDOW, max(end - start, 1)))
    size = buffer.data.size
    table = np.empty((_TABLE_ROWS, len(HeaderColumn)), np.int64)
    position, large = start, 0
    wrong: KafkalogError | None
    try:
        while position < end:
            want, large = min(max(size, large), end - position), 0
            filled = file.read_into(position, buffer.room(0, want))
            if filled < want:  # the file became shorter
                end = position + filled
            frozen, view = buffer.read_only(), buffer.view
            at = 0
            while True:
                rows, swept_to, status = sweep(frozen, at, filled, table, CRC32C_TABLE, CRC32_TABLE)
                found = table[:rows]
                good, wrong = check_remaining_crcs(found, view, position)
                found = found[:good].copy()
                found[:, HeaderColumn.POSITION] += position
                at = int(swept_to)
                if wrong is None and status not in (SweepStatus.OUT_OF_BYTES, SweepStatus.TABLE_FULL):
                    wrong = bad_batch_error(view, at, filled, position + at)
                if len(found) or wrong is not None:
                    yield CheckedWindow(Window(found, view[:filled], position), wrong)
                if wrong is not None:
                    return
                if status != SweepStatus.TABLE_FULL:
                    break
            position += at
            if position < end and (at == 0 or position + (filled - at) >= end):
                # The rest holds no whole batch: a batch that is larger than the buffer begins here, or the file ends.
                try:
                    header = batch_header.announced_batch(
                        file.read, position, end, batch_header.BELIEVED if wants_bytes else 0
                    )
                except (CorruptBatch, UnsupportedFormat) as error:
                    yield CheckedWindow(Window(table[:0], view[:0], position), error)
                    return
                if wants_bytes:
                    large = header.size
                else:
                    head = memoryview(file.read(position, layout.RECORDS_AT))
                    yield CheckedWindow(Window(np.array([(*header, 1, 0)], np.int64), head, position), None)
                    position = header.end
    finally:
        buffer.shrink(size)


def check_remaining_crcs(table: Table, data: memoryview, start: int) -> tuple[int, CorruptBatch | None]:
    """Check the CRCs that the sweep left to its caller, those of large batches.

    Args:
        table: Header table, with positions in `data`.
        data: Bytes of the batches.
        start: Position of `data` in the file.

    Returns:
        The number of rows before the first wrong CRC, and the error for that batch; len(table) and None if all are
        right.
    """
    unseen = np.flatnonzero(table[:, HeaderColumn.CRC_SEEN] == 0)
    wanted = table[unseen][:, [HeaderColumn.POSITION, HeaderColumn.SIZE, HeaderColumn.MAGIC, HeaderColumn.CRC]]
    for row, (at, size, magic, crc) in zip(unseen.tolist(), wanted.tolist(), strict=True):
        if magic == 2:
            found = crc32c(data[at + layout.ATTRIBUTES_AT : at + size])
        else:
            found = batch_header.computed_crc(data[at : at + size], magic)
        if found != crc:
            offset = int(table[row, HeaderColumn.BASE_OFFSET])
            return row, CorruptBatch(batch_header.crc_text(magic, crc, found), position=start + at, offset=offset)
    return len(table), None


def bad_batch_error(data: memoryview, at: int, filled: int, position: int) -> KafkalogError:
    """Return the error for the batch at `at`, where the sweep stopped before the end of the bytes.

    filled: number of valid bytes in `data`. position: that of the batch in the file.
    """
    try:
        size, magic = batch_header.whole_batch(data, at, filled - at, position)
        batch_header.check_crc(batch_header.parse_header(data, at, position), data[at : at + size])
    except (CorruptBatch, UnsupportedFormat) as error:
        return error
    return CorruptBatch(f"no batch of magic {magic}", position=position)
