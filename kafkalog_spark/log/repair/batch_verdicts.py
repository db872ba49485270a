"""Verdicts on the batches of a segment: each is kept, kept with another leader epoch, or lost.

A batch's CRC covers neither its base offset nor its leader epoch. If the offsets of two batches contradict each other,
the batches after them show which of the two is wrong. Therefore the last batches of a window are judged together with
the next window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.format.layout import NO_LEADER_EPOCH, HeaderColumn
from kafkalog_spark.log.read.header_windows import HeaderTable, Window, batch_end
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.repair.damaged_segment import Damage, windows_and_damage
from kafkalog_spark.log.repair.fitting_batches import BatchMask, correct_leader_epochs, select_fitting_batches

_UNDECIDED_BATCHES = 64  # batches at the end of a window that are judged together with the next window
_OFFSETS_INCONSISTENT = "its offsets do not follow those of the batches around it"
_BAD_RECORDS = "its records cannot be read, although its CRC is valid"

FindBadRecords = Callable[[Window], Iterator[int]]
"""Yields the positions in the file of the batches of a window whose records cannot be decoded. `Window.data` must hold
all bytes of these batches."""


class KeptBatches(NamedTuple):
    """Kept batches that are adjacent in the file.

    Attributes:
        table: Their header table.
        epochs: Their corrected leader epochs, int64[n].
    """

    table: HeaderTable
    epochs: npt.NDArray[np.int64]


def judge_batches(
    file: SegmentFile,
    last_offset: int,
    leader_epoch: int = NO_LEADER_EPOCH,
    recovery_point: int | None = None,
    find_bad_records: FindBadRecords | None = None,
) -> Iterator[KeptBatches | Damage]:
    """Yield all bytes of a segment, or of a part of one, in order, as kept batches and as damage.

    Args:
        file: The segment.
        last_offset: Last offset of the batch before the first one in `file`.
        leader_epoch: Leader epoch of that batch.
        recovery_point: See `windows_and_damage`.
        find_bad_records: Finds the batches that are lost because their records cannot be decoded. If it is None,
            records are not decoded.

    Raises:
        NotALogDirectory: If the file cannot be read.
    """
    judge = _BatchJudge(file, last_offset, leader_epoch, find_bad_records)
    for part in windows_and_damage(file, file.begin, recovery_point):
        if isinstance(part, Damage):
            judge.add_damage(part)
        else:
            yield from judge.add_window(part)
    yield from judge.finish()


class _BatchJudge:
    """Judges the batches of one file, window by window. The arguments are those of `judge_batches`."""

    def __init__(
        self, file: SegmentFile, last_offset: int, leader_epoch: int, find_bad_records: FindBadRecords | None
    ) -> None:
        self._file = file
        self._last_offset = last_offset
        self._leader_epoch = leader_epoch
        self._find_bad_records = find_bad_records
        self._undecided: HeaderTable = np.empty((0, len(HeaderColumn)), np.int64)
        self._damage: deque[Damage] = deque()  # not yielded yet, in the order of the file

    def add_damage(self, damage: Damage) -> None:
        """Add the damage that follows the last window."""
        self._damage.append(damage)

    def add_window(self, window: Window) -> Iterator[KeptBatches | Damage]:
        """Add the next window, and yield the verdicts on all batches except the last _UNDECIDED_BATCHES."""
        table = window.table.copy()
        if self._find_bad_records is not None:
            table = self._drop_bad_records(table, window, self._find_bad_records)
        table = np.concatenate((self._undecided, table))
        decided = max(len(table) - _UNDECIDED_BATCHES, 0)
        is_kept = self._select_fitting(table)
        yield from self._verdicts(table[:decided], is_kept[:decided])
        self._undecided = table[decided:]

    def finish(self) -> Iterator[KeptBatches | Damage]:
        """Yield the remaining verdicts and the remaining damage."""
        yield from self._verdicts(self._undecided, self._select_fitting(self._undecided))
        yield from self._damage

    def _drop_bad_records(self, table: HeaderTable, window: Window, find_bad_records: FindBadRecords) -> HeaderTable:
        """Return `table` without the batches whose records cannot be decoded. These are added to the damage."""
        needed = batch_end(table[-1]) - window.start
        if len(window.data) < needed:  # of a large batch, a window holds only the header
            window = Window(window.table, memoryview(self._file.read(window.start, needed)), window.start)
        is_bad = np.isin(table[:, HeaderColumn.POSITION], np.fromiter(find_bad_records(window), np.int64))
        self._damage += [
            Damage(int(row[HeaderColumn.POSITION]), int(row[HeaderColumn.SIZE]), _BAD_RECORDS) for row in table[is_bad]
        ]
        return table[~is_bad]

    def _select_fitting(self, table: HeaderTable) -> BatchMask:
        return select_fitting_batches(table, self._file.base_offset, self._file.next_base_offset, self._last_offset)

    def _verdicts(self, table: HeaderTable, is_kept: BatchMask) -> Iterator[KeptBatches | Damage]:
        """Yield the batches of `table`, and the damage before and between them, in the order of the file."""
        epochs = table[:, HeaderColumn.LEADER_EPOCH].copy()
        epochs[is_kept] = correct_leader_epochs(epochs[is_kept], self._leader_epoch)
        positions, sizes = table[:, HeaderColumn.POSITION], table[:, HeaderColumn.SIZE]
        previous_ends = np.concatenate((positions[:1], positions[:-1] + sizes[:-1]))
        # Adjacent kept batches end before a lost batch, and where bytes of the file are missing in the table.
        breaks = np.flatnonzero(~is_kept | (positions != previous_ends))
        row = 0
        while row < len(table):
            while self._damage and self._damage[0].position < positions[row]:
                yield self._damage.popleft()
            if not is_kept[row]:
                yield Damage(int(positions[row]), int(sizes[row]), _OFFSETS_INCONSISTENT)
                row += 1
                continue
            next_break = int(np.searchsorted(breaks, row, side="right"))
            end = int(breaks[next_break]) if next_break < len(breaks) else len(table)
            self._last_offset = int(table[end - 1, HeaderColumn.LAST_OFFSET])
            self._leader_epoch = int(epochs[end - 1])
            yield KeptBatches(table[row:end], epochs[row:end])
            row = end
