"""Batch headers of a .log file as tables (layout.H), a window of bytes at a time, every CRC checked.

A large file is swept by a kernel at the speed of the disk. A small one is read in plain Python: whoever has little to
look at never loads Numba.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.batch_header import (
    BatchHeader,
    check_crc,
    compare_crc,
    computed_crc,
    continued_crc,
    crc_begins,
    crc_text,
    parse_header,
    parse_prefix,
)
from kafkalog_spark.log.format.checksum import crc32c
from kafkalog_spark.log.format.layout import H

Table = npt.NDArray[np.int64]

_WINDOW = 8 << 20
"""Bytes read at once: large enough that one kernel call and one table cost nothing beside them."""
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

    def first(self, rows: int) -> Window:
        """Its first `rows` batches."""
        return Window(self.table[:rows], self.data, self.start)

    def header(self, row: int) -> BatchHeader:
        return BatchHeader(*self.table[row, : len(BatchHeader._fields)].tolist())


def header_windows(
    fd: int, end: int, start: int = 0, *, plain: bool | None = None
) -> Iterator[tuple[Window, KafkalogError | None]]:
    """The batches between the positions `start` and `end` of an open file, as windows of good ones.

    The last window comes with what is wrong after it, as a value with its position, where the batches end before
    `end`. Offsets are not looked at. A window's bytes are gone when the next one comes. plain: which of the two scans;
    chosen by size. Raises OSError.
    """
    if plain is None:
        plain = end - start < _PLAIN_BELOW
    return (_plain_windows if plain else _swept_windows)(fd, start, end)


def _plain_windows(fd: int, start: int, end: int) -> Iterator[tuple[Window, KafkalogError | None]]:
    """All of it as one window: it is small."""
    data = memoryview(os.pread(fd, end - start, start))
    rows, position = [], 0
    wrong: KafkalogError | None = None
    try:
        while position < len(data):
            _whole_batch(data, position, start + position)
            header = parse_header(data, position, start + position)
            check_crc(header, data[position : position + header.size])
            rows.append((*header, 1, 0))
            position += header.size
    except (CorruptBatch, UnsupportedFormat) as error:
        wrong = error
    table = np.array(rows, np.int64).reshape(-1, len(H))
    yield Window(table, data, start), wrong


def _whole_batch(data: memoryview, at: int, position: int) -> tuple[int, int]:
    """(size, magic) of the batch at data[at:]; CorruptBatch when it does not end within `data`."""
    left = len(data) - at
    if left <= layout.MAGIC_AT:
        raise CorruptBatch(f"the file ends {left} bytes into a batch header", position=position)
    size, magic = parse_prefix(data, at, position)
    if size > left:
        raise CorruptBatch(f"a batch of {size} bytes begins here, the file ends after {left}", position=position)
    return size, magic


def _swept_windows(fd: int, start: int, end: int) -> Iterator[tuple[Window, KafkalogError | None]]:
    from kafkalog_spark.log.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
    from kafkalog_spark.log.kernels.sweep import SweepStatus, sweep

    buffer = np.empty(min(_WINDOW, max(end - start, 1)), np.uint8)
    view = buffer.data
    frozen = buffer[:]
    frozen.flags.writeable = False  # the kernel was compiled for read-only input
    table = np.empty((_TABLE_ROWS, len(H)), np.int64)
    position = start
    wrong: KafkalogError | None
    while position < end:
        want = min(len(buffer), end - position)
        filled = os.preadv(fd, [view[:want]], position)
        if filled < want:  # the file became shorter
            end = position + filled
        at = 0
        while True:
            rows, behind, status = sweep(frozen, at, filled, table, CRC32C_TABLE, CRC32_TABLE)
            found = table[:rows]
            good, wrong = check_large(found, view, position)
            found = found[:good].copy()
            found[:, H.POSITION] += position
            stopped = int(behind)
            if wrong is None and status not in (SweepStatus.OUT_OF_BYTES, SweepStatus.TABLE_FULL):
                wrong = what_is_wrong(view, stopped, filled, position + stopped)
            if len(found) or wrong is not None:
                yield Window(found, view[:filled], position), wrong
            if wrong is not None:
                return
            at = stopped
            if status != SweepStatus.TABLE_FULL:
                break
        position += at
        if at == 0 or position + (filled - at) >= end:
            # What is left begins no batch that is whole in the buffer: a large one, or the end of the file.
            if position == end:
                return
            window, wrong = large_batch(fd, position, end)
            yield window, wrong
            if wrong is not None:
                return
            position += int(window.table[0, H.SIZE])


def large_batch(fd: int, position: int, end: int) -> tuple[Window, KafkalogError | None]:
    """One batch, its CRC checked piece by piece: a length that lies must not cost its size in memory.

    The window's bytes are those of the header.
    """
    head = memoryview(os.pread(fd, layout.RECORDS_AT, position))
    try:
        if end - position <= layout.MAGIC_AT:
            raise CorruptBatch(f"the file ends {end - position} bytes into a batch header", position=position)
        size, magic = parse_prefix(head, 0, position)
        if size > end - position:
            raise CorruptBatch(
                f"a batch of {size} bytes begins here, the file ends after {end - position}", position=position
            )
        header = parse_header(head, 0, position)
        crc, at = 0, position + crc_begins(magic)
        while at < header.end:
            piece = os.pread(fd, min(_WINDOW, header.end - at), at)
            if not piece:
                raise CorruptBatch("the file became shorter while it was read", position=position)
            crc, at = continued_crc(crc, piece, magic), at + len(piece)
        compare_crc(header, crc)
    except (CorruptBatch, UnsupportedFormat) as error:
        return Window(np.empty((0, len(H)), np.int64), head, position), error
    return Window(np.array([(*header, 1, 0)], np.int64), head, position), None


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
            return row, CorruptBatch(crc_text(magic, crc, found), position=start + at)
    return len(table), None


def what_is_wrong(data: memoryview, at: int, filled: int, position: int) -> KafkalogError:
    """The error for the batch where the sweep stopped for more than the end of its bytes."""
    try:
        size, magic = _whole_batch(data[:filled], at, position)
        check_crc(parse_header(data, at, position), data[at : at + size])
    except (CorruptBatch, UnsupportedFormat) as error:
        return error
    return CorruptBatch(f"no batch of magic {magic}", position=position)
