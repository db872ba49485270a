"""The batches of a closed segment, a window of bytes at a time, each with a valid CRC and rising offsets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.layout import H
from kafkalog_spark.log.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
from kafkalog_spark.log.kernels.sweep import SweepStatus, sweep
from kafkalog_spark.log.read.header_windows import check_large, large_batch, what_is_wrong
from kafkalog_spark.log.read.scratch import Scratch
from kafkalog_spark.log.write.segment_recovery import OffsetOverflow, in_order

_BELIEVED = 16 << 20
"""Bytes of a batch from which its CRC is checked piece by piece first: a length that lies must not cost its memory."""
_TABLE_ROWS = 8 << 10
"""Headers at once: a window of usual size never has as many."""


@dataclass(frozen=True, slots=True)
class BatchWindow:
    """Whole batches. table: int64[n, len(H)], POSITION in `data`; both are filled again for the next window.

    data: uint8[], read-only. start: byte of the file where it begins. read: bytes of the file that it takes further.
    """

    table: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]
    view: memoryview
    start: int
    read: int

    def batch(self, row: int) -> memoryview:
        """The bytes of one batch."""
        position = int(self.table[row, H.POSITION])
        return self.view[position : position + int(self.table[row, H.SIZE])]


class SegmentWindows:
    """buffer_size: bytes of a window; it grows for a larger batch, and shrinks again after the segment."""

    def __init__(self, buffer_size: int) -> None:
        self._size = max(buffer_size, layout.BATCH_OVERHEAD)
        self._buffer = Scratch(self._size)
        self._table = np.empty((_TABLE_ROWS, len(H)), np.int64)

    def read(self, path: str, fd: int, size: int, base_offset: int, position: int = 0) -> Iterator[BatchWindow]:
        """The batches in the first `size` bytes of a file, from the one at `position` on.

        Raises CorruptBatch, UnsupportedFormat with file, position and offset; OffsetOverflow, OSError.
        """
        next_offset = base_offset
        wrong: KafkalogError | None
        try:
            while position < size:
                filled = self._fill(fd, position, size)
                view = self._buffer.view
                at = 0
                while True:
                    rows, behind, status = sweep(
                        self._buffer.read_only(), at, filled, self._table, CRC32C_TABLE, CRC32_TABLE
                    )
                    table = self._table[:rows]
                    good, wrong = check_large(table, view, position)
                    if wrong is None and status not in (SweepStatus.OUT_OF_BYTES, SweepStatus.TABLE_FULL):
                        wrong = what_is_wrong(view, int(behind), filled, position + int(behind))
                    if wrong is not None:
                        raise wrong
                    rising = in_order(table, base_offset, next_offset)
                    if rising < good:
                        row = table[rising]
                        lowest = int(table[rising - 1, H.LAST_OFFSET]) + 1 if rising else next_offset
                        if lowest <= row[H.BASE_OFFSET] <= row[H.LAST_OFFSET]:
                            place = position + int(row[H.POSITION])
                            raise OffsetOverflow(Path(path), base_offset, int(row[H.LAST_OFFSET]), place)
                        raise CorruptBatch(
                            f"offsets {int(row[H.BASE_OFFSET])} to {int(row[H.LAST_OFFSET])} do not rise from {lowest}",
                            position=position + int(row[H.POSITION]),
                        )
                    if rows:
                        yield BatchWindow(table, self._buffer.read_only(), view, position, int(behind) - at)
                        next_offset = int(table[-1, H.LAST_OFFSET]) + 1
                    at = int(behind)
                    if status != SweepStatus.TABLE_FULL:
                        break
                position += at
        except (CorruptBatch, UnsupportedFormat) as error:
            raise error.at(path=path, position=position, offset=next_offset) from None
        finally:
            self._buffer.shrink(self._size)

    def _fill(self, fd: int, position: int, size: int) -> int:
        """Read at least one whole batch; how many bytes."""
        want = min(self._size, size - position)
        filled = _read(fd, self._buffer.room(0, want), position)
        if filled < want or filled <= layout.MAGIC_AT:
            raise CorruptBatch(f"{filled} bytes are left, {size - position} were to come", position=position)
        at = layout.LENGTH_AT
        batch = int.from_bytes(self._buffer.view[at : at + 4], "big", signed=True) + layout.LOG_OVERHEAD
        if batch <= filled:
            return filled
        if batch > size - position:
            raise CorruptBatch(f"a batch of {batch} bytes begins here, {size - position} are left", position=position)
        if batch > _BELIEVED:
            wrong = large_batch(fd, position, size)[1]
            if wrong is not None:
                raise wrong
        return _read(fd, self._buffer.room(0, batch), position)


def _read(fd: int, room: memoryview, position: int) -> int:
    filled = 0
    while filled < len(room):
        count = os.preadv(fd, [room[filled:]], position + filled)
        if count == 0:
            break
        filled += count
    return filled
