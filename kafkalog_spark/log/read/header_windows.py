"""Batch headers of a .log file as tables (layout.H), a window of bytes at a time, every CRC checked.

A large file is swept by a kernel at the speed of the disk. A small one is read in plain Python: whoever has little to
look at never loads Numba.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import (
    BELIEVED,
    BatchHeader,
    announced_batch,
    check_crc,
    computed_crc,
    crc_text,
    parse_header,
    whole_batch,
)
from kafkalog_spark.format.layout import H
from kafkalog_spark.format.records import crc32c
from kafkalog_spark.log.decode.scratch import Scratch
from kafkalog_spark.store.interface import RangeReader

Table = npt.NDArray[np.int64]

_WINDOW = 8 << 20
"""Bytes read at once: large enough that one kernel call and one table cost nothing next to them."""
_PLAIN_BELOW = 1 << 20
"""Bytes up to which plain Python is quicker than loading Numba (0.3 s)."""
_TABLE_ROWS = 32 << 10


@dataclass(frozen=True, slots=True)
class Window:
    """Batches that were found good. table: int64[n, len(H)], POSITION in the file; `batch(row)` gives one's bytes."""

    table: Table
    data: memoryview
    """From position `start` of the file on."""
    start: int

    def batch(self, row: int) -> memoryview:
        position = int(self.table[row, H.POSITION]) - self.start
        return self.data[position : position + int(self.table[row, H.SIZE])]

    @property
    def size(self) -> int:
        """Bytes of its batches."""
        return int(self.table[:, H.SIZE].sum())

    @property
    def starts(self) -> Table:
        """int64[n], where in `data` each batch begins."""
        starts: Table = self.table[:, H.POSITION] - self.start
        return starts

    def records(self, first: int, end: int) -> tuple[Table, Table]:
        """(starts, ends) in `data` of the records of v2 batches: rows [first, end)."""
        starts = self.table[first:end, H.POSITION] - self.start
        return starts + layout.RECORDS_AT, starts + self.table[first:end, H.SIZE]

    @property
    def payload(self) -> npt.NDArray[np.uint8]:
        """`data` as the kernels take it."""
        return np.frombuffer(self.data.toreadonly(), np.uint8)

    def first(self, rows: int) -> Window:
        """Its first `rows` batches."""
        return Window(self.table[:rows], self.data, self.start)

    def header(self, row: int) -> BatchHeader:
        return BatchHeader(*self.table[row, : len(BatchHeader._fields)].tolist())


def header_windows(
    file: RangeReader, end: int, start: int = 0, *, plain: bool | None = None, buffer: Scratch | None = None
) -> Iterator[tuple[Window, KafkalogError | None]]:
    """The batches between the positions `start` and `end` of an open file, as windows of good ones.

    The last window comes with what is wrong after it, as a value with its position, where the batches end before
    `end`. Offsets are not looked at. A window's bytes are gone when the next one comes. plain: which of the two scans;
    chosen by size. buffer: where a swept window lies; it grows for a batch that is larger, and shrinks afterwards. By
    default a window of its own is read, and of a larger batch only the header. Raises OSError.
    """
    if plain is None:
        plain = buffer is None and end - start < _PLAIN_BELOW
    return _plain_windows(file, start, end) if plain else _swept_windows(file, start, end, buffer)


def _plain_windows(file: RangeReader, start: int, end: int) -> Iterator[tuple[Window, KafkalogError | None]]:
    """All of it as one window: it is small."""
    data = memoryview(file.read(start, end - start))
    rows, position = [], 0
    wrong: KafkalogError | None = None
    try:
        while position < len(data):
            whole_batch(data, position, len(data) - position, start + position)
            header = parse_header(data, position, start + position)
            check_crc(header, data[position : position + header.size])
            rows.append((*header, 1, 0))
            position += header.size
    except (CorruptBatch, UnsupportedFormat) as error:
        wrong = error
    table = np.array(rows, np.int64).reshape(-1, len(H))
    yield Window(table, data, start), wrong


def _swept_windows(
    file: RangeReader, start: int, end: int, buffer: Scratch | None = None
) -> Iterator[tuple[Window, KafkalogError | None]]:
    from kafkalog_spark.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
    from kafkalog_spark.kernels.sweep import SweepStatus, sweep

    wants_bytes = buffer is not None
    buffer = buffer or Scratch(min(_WINDOW, max(end - start, 1)))
    size = buffer.data.size
    table = np.empty((_TABLE_ROWS, len(H)), np.int64)
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
                good, wrong = check_large(found, view, position)
                found = found[:good].copy()
                found[:, H.POSITION] += position
                at = int(swept_to)
                if wrong is None and status not in (SweepStatus.OUT_OF_BYTES, SweepStatus.TABLE_FULL):
                    wrong = what_is_wrong(view, at, filled, position + at)
                if len(found) or wrong is not None:
                    yield Window(found, view[:filled], position), wrong
                if wrong is not None:
                    return
                if status != SweepStatus.TABLE_FULL:
                    break
            position += at
            if position < end and (at == 0 or position + (filled - at) >= end):
                # What is left begins no batch that is whole in the buffer: a large one, or the end of the file.
                try:
                    header = announced_batch(file.read, position, end, BELIEVED if wants_bytes else 0)
                except (CorruptBatch, UnsupportedFormat) as error:
                    yield Window(table[:0], view[:0], position), error
                    return
                if wants_bytes:
                    large = header.size
                else:
                    head = memoryview(file.read(position, layout.RECORDS_AT))
                    yield Window(np.array([(*header, 1, 0)], np.int64), head, position), None
                    position = header.end
    finally:
        buffer.shrink(size)


def check_large(table: Table, data: memoryview, start: int) -> tuple[int, CorruptBatch | None]:
    """How many batches have a valid CRC: those that the sweep left to its caller are checked here."""
    unseen = np.flatnonzero(table[:, H.CRC_SEEN] == 0)
    for row, at, size, magic, crc in zip(
        unseen.tolist(),
        table[unseen, H.POSITION].tolist(),
        table[unseen, H.SIZE].tolist(),
        table[unseen, H.MAGIC].tolist(),
        table[unseen, H.CRC].tolist(),
        strict=True,
    ):
        if magic == 2:
            found = crc32c(data[at + layout.ATTRIBUTES_AT : at + size])
        else:
            found = computed_crc(data[at : at + size], magic)
        if found != crc:
            offset = int(table[row, H.BASE_OFFSET])
            return row, CorruptBatch(crc_text(magic, crc, found), position=start + at, offset=offset)
    return len(table), None


def what_is_wrong(data: memoryview, at: int, filled: int, position: int) -> KafkalogError:
    """The error for the batch where the sweep stopped for more than the end of its bytes."""
    try:
        size, magic = whole_batch(data, at, filled - at, position)
        check_crc(parse_header(data, at, position), data[at : at + size])
    except (CorruptBatch, UnsupportedFormat) as error:
        return error
    return CorruptBatch(f"no batch of magic {magic}", position=position)
