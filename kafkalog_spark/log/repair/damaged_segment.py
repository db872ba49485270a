"""A segment as runs of good batches and the damaged stretches between them, with the offsets that are missing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import MAX_INT64, NO_LEADER_EPOCH, H
from kafkalog_spark.log.read.batch_search import find_batch_behind
from kafkalog_spark.log.read.segment_file import SegmentFile, Table, Window
from kafkalog_spark.log.tables.damage import Damage, stretches

if TYPE_CHECKING:
    from kafkalog_spark.log.read.partition_scan import ScanState  # loads the kernels


# Which of a segment's good batches can stand in one log together. Decisions on header tables.
#
# Base offset and leader epoch lie outside a batch's CRC: a batch may be good, and say of itself what cannot be.
# Offsets must rise from batch to batch, and the batches that do so together, as many as there are, are kept. A
# leader epoch that falls out of line is written again: it says nothing of the records.

Rows = npt.NDArray[np.bool_]


def fitting(table: Table, base_offset: int, next_base_offset: int | None, last_offset: int) -> Rows:
    """bool[n]: which batches are kept after `last_offset`, in a segment [base_offset, next_base_offset)."""
    base, last = table[:, H.BASE_OFFSET], table[:, H.LAST_OFFSET]
    # of a wrapper the first offset is not known: what its header says is its last one
    end = MAX_INT64 if next_base_offset is None else next_base_offset
    lowest = max(base_offset, last_offset + 1)
    possible = (base >= lowest) & (last >= base) & (last < end) & (last - base_offset <= MAX_RELATIVE_OFFSET)
    rows = np.flatnonzero(possible)
    if (base[rows][1:] > last[rows][:-1]).all():
        return possible
    keep = np.zeros(len(table), bool)
    keep[rows[_longest_chain(base[rows].tolist(), last[rows].tolist())]] = True
    return keep


def _longest_chain(base: list[int], last: list[int]) -> list[int]:
    """Places of the longest row of intervals [base, last] that follow each other."""
    ends: list[int] = []  # the lowest last offset of a chain of so many
    places: list[int] = []  # and the interval that ends it
    before = [-1] * len(base)
    for at, (first, end) in enumerate(zip(base, last, strict=True)):
        length = bisect_left(ends, first)
        before[at] = places[length - 1] if length else -1
        if length == len(ends):
            ends.append(end)
            places.append(at)
        elif end < ends[length]:
            ends[length], places[length] = end, at
    chain = []
    at = places[-1] if places else -1
    while at >= 0:
        chain.append(at)
        at = before[at]
    return chain[::-1]


def true_epochs(epochs: npt.NDArray[np.int64], highest: int) -> npt.NDArray[np.int64]:
    """int64[n]: the leader epochs that batches are given, none below `highest`, that of the batch before.

    Those of the longest row that does not fall are believed, and stand for what lies between.
    """
    given = np.maximum.accumulate(np.concatenate(([highest], epochs)))[1:]
    if (epochs == given).all() or (epochs == NO_LEADER_EPOCH).all():
        return epochs
    ends: list[int] = []
    places: list[int] = []
    before = [-1] * len(epochs)
    for at, epoch in enumerate(epochs.tolist()):
        if epoch < highest:
            continue
        length = bisect_right(ends, epoch)
        before[at] = places[length - 1] if length else -1
        if length == len(ends):
            ends.append(epoch)
            places.append(at)
        else:
            ends[length], places[length] = epoch, at
    believed = np.full(len(epochs), highest, np.int64)
    at = places[-1] if places else -1
    while at >= 0:
        believed[at] = epochs[at]
        at = before[at]
    found: npt.NDArray[np.int64] = np.maximum.accumulate(believed)
    return found


# A segment judged as a whole: which of its batches stand in the log, and what lies between them.
#
# Offsets lie outside a batch's CRC, and what follows shows which of two that contradict each other is wrong: batches
# are judged some at a time, with those at the end of each window held back until the next one is there.

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


@dataclass(slots=True)
class Run:
    """Good batches that are neighbours in the bytes [position, end), with offsets base_offset to last_offset."""

    position: int
    end: int
    base_offset: int
    last_offset: int


@dataclass(slots=True, order=True)
class Stretch:
    """Bytes [position, position + size) of a .log between good batches; size 0 where the file was cut after one.

    The offsets [first_offset, next_offset) lie between these: those that compaction had left are missing. next_offset:
    None at the end of the log. to_the_end: no good batch follows in the file.
    """

    position: int
    size: int
    error: str
    path: str
    first_offset: int
    next_offset: int | None
    to_the_end: bool = False


@dataclass(slots=True)
class JudgedSegment:
    """In the order of the file."""

    runs: list[Run] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)


def judged_segment(file: SegmentFile, recovery_point: int | None) -> JudgedSegment:
    """Judge a whole segment. What an interrupted write left at the end of the log is no damage. Raises
    NotALogDirectory."""
    found = JudgedSegment()
    last_offset, open_stretch = file.first_offset - 1, False
    for part in judged_batches(file, last_offset, recovery_point=recovery_point):
        if isinstance(part, Lost):
            if part.is_torn_tail:
                continue
            if open_stretch:
                found.stretches[-1].size = part.position + part.size - found.stretches[-1].position
            else:
                found.stretches.append(
                    Stretch(part.position, part.size, part.why, file.path, last_offset + 1, file.next_base_offset, True)
                )
            open_stretch = True
            continue
        table = part.table
        base, last = first_offset(table, last_offset), int(table[-1, H.LAST_OFFSET])
        if open_stretch:
            found.stretches[-1].next_offset, found.stretches[-1].to_the_end = base, False
        position, end = int(table[0, H.POSITION]), end_of(table[-1])
        if found.runs and found.runs[-1].end == position:
            found.runs[-1].end, found.runs[-1].last_offset = end, last
        else:
            found.runs.append(Run(position, end, base, last))
        last_offset, open_stretch = last, False
    if not open_stretch and file.is_whole:
        _add_what_was_cut_off(found, file, last_offset + 1, recovery_point)
    return found


def first_offset(table: np.ndarray, last_offset: int) -> int:
    """The lowest offset that the first batch of a header table can hold, after `last_offset`: a wrapper's header names
    its last one only."""
    return last_offset + 1 if table[0, H.COUNT] < 0 else int(table[0, H.BASE_OFFSET])


def _add_what_was_cut_off(found: JudgedSegment, file: SegmentFile, first: int, recovery_point: int | None) -> None:
    """Add the loss at the end of a file whose last batch is good, where something proves that more lay there: an entry
    of its offset index, or at the end of the log the recovery point."""
    if file.is_last:
        if recovery_point is None or recovery_point <= first:
            return
        proof = f"the log was flushed up to offset {recovery_point} (recovery-point-offset-checkpoint)"
    else:
        beyond = file.offset_index.ceiling_position(file.size)
        before = file.offset_index.floor_position(file.size - 1)
        # believed where the entry before it is true: an index may be garbage, or another file's
        if beyond is None or not before.position or file.proven_entry(before) is None:
            return
        proof = f"its offset index names a batch at byte {beyond.position}"
    error = f"the file ends here, and {proof}"
    found.stretches.append(Stretch(file.size, 0, error, file.path, first, file.next_base_offset, True))


def pass_over_records(
    part: SegmentFile, state: ScanState, error: KafkalogError, run: Run, judged: JudgedSegment
) -> bool:
    """Add a batch of a run whose records cannot be read, under a valid CRC, to the stretches, and move `state` past it;
    False at the end of the run, which is that of the file `part`."""
    damaged = state.position if error.position is None else error.position
    header = part.header_at(damaged)
    assert header is not None  # its CRC was found right
    following = find_batch_behind(part, damaged, header.last_offset + 1)
    next_offset = header.last_offset + 1 if following is None else following.base_offset
    insort(
        judged.stretches,
        Stretch(damaged, header.size, error.what, part.path, header.base_offset, next_offset),
        key=lambda stretch: stretch.position,
    )
    if following is None:
        return False
    state.stopped_by = None
    state.position, state.lowest_offset = following.position, following.base_offset
    return True
