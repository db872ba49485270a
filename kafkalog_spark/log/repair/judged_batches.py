"""A segment judged as a whole: which of its batches stand in the log, and what lies between them.

Offsets lie outside a batch's CRC, and what follows shows which of two that contradict each other is wrong: batches are
judged some at a time, with those at the end of each window held back until the next one is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.log.format.layout import MAX_INT64, NO_LEADER_EPOCH, H
from kafkalog_spark.log.read.header_windows import Table, Window
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.repair.kept_batches import fitting, true_epochs
from kafkalog_spark.log.tables.damage import Damage, stretches

_HELD_BACK = 64
"""Batches at the end of a window that are judged with those of the next."""
OUT_OF_LINE = "its offsets do not follow those of the batches around it"
BAD_RECORDS = "its records cannot be read, under a valid CRC"

FirstBad = Callable[[Window], Iterator[int]]
"""Positions of batches whose records cannot be read, of a window with all bytes."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes [position, position + size) that are not of the log. is_torn_tail: an interrupted write explains
    them."""

    position: int
    size: int
    why: str
    is_torn_tail: bool = False


class Kept(NamedTuple):
    """Batches of the log that are neighbours in the file. epochs: int64[n], the leader epochs that they are given."""

    table: Table
    epochs: npt.NDArray[np.int64]


def judged_batches(
    file: SegmentFile,
    last_offset: int,
    leader_epoch: int = NO_LEADER_EPOCH,
    recovery_point: int | None = None,
    bad_records: FirstBad | None = None,
) -> Iterator[Kept | Lost]:
    """The segment, or a part of one, from its first byte to its last: kept batches, and what is lost between them.

    last_offset, leader_epoch: of the batch before the segment. recovery_point: see `stretches`. bad_records: finds
    batches that are lost for what their records are. Raises NotALogDirectory.
    """
    judge = _Judge(file, last_offset, leader_epoch)
    for found in stretches(file, file.begin, recovery_point):
        if isinstance(found, Damage):
            judge.lost.append(Lost(found.position, found.size, found.error, found.is_torn_tail))
        else:
            yield from judge.take(found, bad_records)
    yield from judge.rest()


def end_of(row: Table) -> int:
    """Byte after a batch, of its row in a header table."""
    return int(row[H.POSITION] + row[H.SIZE])


class _Judge:
    def __init__(self, file: SegmentFile, last_offset: int, leader_epoch: int) -> None:
        self._file = file
        self._last_offset = last_offset
        self._leader_epoch = leader_epoch
        self._held: Table | None = None
        self.lost: deque[Lost] = deque()
        """After the batches that have been judged."""

    def take(self, window: Window, bad_records: FirstBad | None) -> Iterator[Kept | Lost]:
        table = window.table.copy()
        if bad_records is not None:
            bad = np.fromiter(bad_records(self._with_bytes(window)), np.int64)
            for row in np.flatnonzero(np.isin(table[:, H.POSITION], bad)).tolist():
                self.lost.append(Lost(int(table[row, H.POSITION]), int(table[row, H.SIZE]), BAD_RECORDS))
            table = table[~np.isin(table[:, H.POSITION], bad)]
        held = table if self._held is None else np.concatenate((self._held, table))
        done = max(len(held) - _HELD_BACK, 0)
        keep = self._fitting(held)
        yield from self._walk(held[:done], keep[:done])
        self._held = held[done:]

    def rest(self) -> Iterator[Kept | Lost]:
        """No batch follows those that were held back."""
        if self._held is not None and len(self._held):
            yield from self._walk(self._held, self._fitting(self._held))
        self._held = None
        yield from self._lost_before(MAX_INT64)

    def _fitting(self, table: Table) -> np.ndarray:
        return fitting(table, self._file.base_offset, self._file.next_base_offset, self._last_offset)

    def _with_bytes(self, window: Window) -> Window:
        """The window with all bytes of its batches: of a large one it has the header only."""
        needed = end_of(window.table[-1]) - window.start
        if len(window.data) >= needed:
            return window
        return Window(window.table, memoryview(self._file.read(window.start, needed)), window.start)

    def _walk(self, table: Table, keep: np.ndarray) -> Iterator[Kept | Lost]:
        epochs = table[:, H.LEADER_EPOCH].copy()
        epochs[keep] = true_epochs(epochs[keep], self._leader_epoch)
        breaks = np.flatnonzero(~keep | (table[:, H.POSITION] != _ends_before(table)))
        row = 0
        while row < len(table):
            yield from self._lost_before(int(table[row, H.POSITION]))
            if not keep[row]:
                yield Lost(int(table[row, H.POSITION]), int(table[row, H.SIZE]), OUT_OF_LINE)
                row += 1
                continue
            following = breaks[np.searchsorted(breaks, row, side="right") :]
            end = int(following[0]) if len(following) else len(table)
            self._last_offset = int(table[end - 1, H.LAST_OFFSET])
            self._leader_epoch = int(epochs[end - 1])
            yield Kept(table[row:end], epochs[row:end])
            row = end

    def _lost_before(self, position: int) -> Iterator[Lost]:
        while self.lost and self.lost[0].position < position:
            yield self.lost.popleft()


def _ends_before(table: Table) -> np.ndarray:
    """int64[n], where the batch before each one ends; of the first one its own position."""
    ends: np.ndarray = np.concatenate((table[:1, H.POSITION], table[:-1, H.POSITION] + table[:-1, H.SIZE]))
    return ends
