"""Verdict on each batch of a segment: kept, rewritten or lost.

Offsets lie outside a batch's CRC. If two batches contradict each other, the batches after them show which one is wrong;
therefore the last batches of a window are judged together with the next window.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.layout import NO_LEADER_EPOCH, HeaderColumn
from kafkalog_spark.log.read.batch_search import find_batch_behind
from kafkalog_spark.log.read.segment_file import SegmentFile, Table, Window

if TYPE_CHECKING:
    from kafkalog_spark.log.read.partition_scan import ScanState  # loads the kernels
from kafkalog_spark.log.repair.damaged_segment import Damage, stretches
from kafkalog_spark.log.repair.fitting_batches import Rows, fitting, true_epochs

_HELD_BACK = 64  # batches at the end of a window that are judged with those of the next
OUT_OF_LINE = "its offsets do not follow those of the batches around it"
BAD_RECORDS = "its records cannot be read, under a valid CRC"
FirstBad = Callable[[Window], Iterator[int]]
"""Positions of batches whose records cannot be read, of a window with all bytes."""


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
) -> Iterator[Kept | Damage]:
    """The segment, or a part of one, from its first byte to its last: kept batches, and what is lost between them.
    last_offset, leader_epoch: of the batch before it. recovery_point: see `stretches`. bad_records: finds batches that
    are lost for what their records are. Raises NotALogDirectory."""
    judge = _Judge(file, last_offset, leader_epoch)
    for stretch in stretches(file, file.begin, recovery_point):
        if isinstance(stretch, Damage):
            judge.lost.append(stretch)
        else:
            yield from judge.take(stretch, bad_records)
    yield from judge.walk(judge.held, judge.fitting(judge.held))
    yield from judge.lost


def end_of(row: Table) -> int:
    """Byte after a batch, of its row in a header table."""
    return int(row[HeaderColumn.POSITION] + row[HeaderColumn.SIZE])


class _Judge:
    """held: batches that are judged with those of the next window; lost: after the batches that have been judged."""

    def __init__(self, file: SegmentFile, last_offset: int, leader_epoch: int) -> None:
        self._file = file
        self._last_offset = last_offset
        self._leader_epoch = leader_epoch
        self.held: Table = np.empty((0, len(HeaderColumn)), np.int64)
        self.lost: deque[Damage] = deque()

    def take(self, window: Window, bad_records: FirstBad | None) -> Iterator[Kept | Damage]:
        table = window.table.copy()
        if bad_records is not None:
            needed = end_of(table[-1]) - window.start
            if len(window.data) < needed:  # of a large batch a window has the header only
                window = Window(window.table, memoryview(self._file.read(window.start, needed)), window.start)
            is_bad = np.isin(table[:, HeaderColumn.POSITION], np.fromiter(bad_records(window), np.int64))
            self.lost += [
                Damage(int(row[HeaderColumn.POSITION]), int(row[HeaderColumn.SIZE]), BAD_RECORDS)
                for row in table[is_bad]
            ]
            table = table[~is_bad]
        held = np.concatenate((self.held, table))
        done = max(len(held) - _HELD_BACK, 0)
        yield from self.walk(held[:done], self.fitting(held)[:done])
        self.held = held[done:]

    def fitting(self, table: Table) -> Rows:
        return fitting(table, self._file.base_offset, self._file.next_base_offset, self._last_offset)

    def walk(self, table: Table, keep: Rows) -> Iterator[Kept | Damage]:
        epochs = table[:, HeaderColumn.LEADER_EPOCH].copy()
        epochs[keep] = true_epochs(epochs[keep], self._leader_epoch)
        positions = table[:, HeaderColumn.POSITION]
        ends_before = np.concatenate((positions[:1], positions[:-1] + table[:-1, HeaderColumn.SIZE]))
        breaks = np.flatnonzero(~keep | (positions != ends_before))
        row = 0
        while row < len(table):
            while self.lost and self.lost[0].position < positions[row]:
                yield self.lost.popleft()
            if not keep[row]:
                yield Damage(int(positions[row]), int(table[row, HeaderColumn.SIZE]), OUT_OF_LINE)
                row += 1
                continue
            following = breaks[np.searchsorted(breaks, row, side="right") :]
            end = int(following[0]) if len(following) else len(table)
            self._last_offset = int(table[end - 1, HeaderColumn.LAST_OFFSET])
            self._leader_epoch = int(epochs[end - 1])
            yield Kept(table[row:end], epochs[row:end])
            row = end


@dataclass(slots=True)
class Run:
    """Good batches that are neighbours in the bytes [position, end), with offsets base_offset to last_offset."""

    position: int
    end: int
    base_offset: int
    last_offset: int


@dataclass(slots=True, order=True)
class Stretch:
    """Bytes [position, position + size) of a .log between good batches; size 0 where the file was cut after one. The
    offsets [first_offset, next_offset) lie between these: those that compaction had left are missing. next_offset: None
    at the end of the log. to_the_end: no good batch follows in the file."""

    position: int
    size: int
    error: str
    path: str
    first_offset: int
    next_offset: int | None
    to_the_end: bool = False


@dataclass(slots=True)
class JudgedSegment:
    runs: list[Run] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)


def judged_segment(file: SegmentFile, recovery_point: int | None) -> JudgedSegment:
    """Judge a whole segment. A torn tail is no damage. Raises NotALogDirectory."""
    judged = JudgedSegment()
    last_offset, open_stretch = file.first_offset - 1, False
    for part in judged_batches(file, last_offset, recovery_point=recovery_point):
        if isinstance(part, Damage):
            if part.is_torn_tail:
                continue
            if open_stretch:
                judged.stretches[-1].size = part.position + part.size - judged.stretches[-1].position
            else:
                judged.stretches.append(
                    Stretch(
                        part.position, part.size, part.error, file.path, last_offset + 1, file.next_base_offset, True
                    )
                )
            open_stretch = True
            continue
        table = part.table
        # a wrapper's header names its last offset only
        base = last_offset + 1 if table[0, HeaderColumn.COUNT] < 0 else int(table[0, HeaderColumn.BASE_OFFSET])
        last = int(table[-1, HeaderColumn.LAST_OFFSET])
        if open_stretch:
            judged.stretches[-1].next_offset, judged.stretches[-1].to_the_end = base, False
        position, end = int(table[0, HeaderColumn.POSITION]), end_of(table[-1])
        if judged.runs and judged.runs[-1].end == position:
            judged.runs[-1].end, judged.runs[-1].last_offset = end, last
        else:
            judged.runs.append(Run(position, end, base, last))
        last_offset, open_stretch = last, False
    if not open_stretch and file.is_whole:
        _add_missing_end(judged, file, last_offset + 1, recovery_point)
    return judged


def _add_missing_end(judged: JudgedSegment, file: SegmentFile, first: int, recovery_point: int | None) -> None:
    """Add the loss at the end of a file that ends well, where its offset index or the recovery point proves one."""
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
    judged.stretches.append(Stretch(file.size, 0, error, file.path, first, file.next_base_offset, True))


def pass_over_records(
    part: SegmentFile, state: ScanState, error: KafkalogError, run: Run, judged: JudgedSegment
) -> bool:
    """Add a batch with unreadable records under a valid CRC to the stretches; move `state` past it.
    False at the end of the run. Records before `error.offset` were read."""
    damaged = state.position if error.position is None else error.position
    header = part.header_at(damaged)
    assert header is not None  # its CRC was found right
    following = find_batch_behind(part, damaged, header.last_offset + 1)
    next_offset = header.last_offset + 1 if following is None else following.base_offset
    first_offset = header.base_offset if error.offset is None else error.offset
    insort(
        judged.stretches,
        Stretch(damaged, header.size, error.what, part.path, first_offset, next_offset),
        key=lambda stretch: stretch.position,
    )
    if following is None:
        return False
    state.stopped_by = None
    state.position, state.lowest_offset = following.position, following.base_offset
    return True
