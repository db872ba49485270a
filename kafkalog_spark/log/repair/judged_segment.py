"""Verdict on each batch of a segment: kept, kept with another leader epoch, or lost.

The runs of good batches and the damaged stretches of a segment follow from the verdicts.

Offsets are not covered by a batch's CRC. If two batches contradict each other, the batches after them show which one is
wrong; therefore the last batches of a window are judged together with those of the next window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.format.layout import NO_LEADER_EPOCH, HeaderColumn
from kafkalog_spark.log.read.header_windows import Table, Window
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import proven_entry
from kafkalog_spark.log.repair.damaged_segment import Damage, windows_and_damage
from kafkalog_spark.log.repair.fitting_batches import Rows, fitting, true_epochs

_HELD_BACK = 64  # batches at the end of a window that are judged with those of the next
OFFSETS_INCONSISTENT = "its offsets do not follow those of the batches around it"
BAD_RECORDS = "its records cannot be read, although its CRC is valid"
FindBadRecords = Callable[[Window], Iterator[int]]
"""Yields the positions of the batches of a window whose records cannot be decoded. The window must have all bytes."""


class Kept(NamedTuple):
    """Kept batches that are adjacent in the file. epochs: int64[n], their corrected leader epochs."""

    table: Table
    epochs: npt.NDArray[np.int64]


def judge_batches(
    file: SegmentFile,
    last_offset: int,
    leader_epoch: int = NO_LEADER_EPOCH,
    recovery_point: int | None = None,
    bad_records: FindBadRecords | None = None,
) -> Iterator[Kept | Damage]:
    """Yield all bytes of a segment, or of a part of one, in order, as kept batches and as damage.

    Args:
        file: The segment.
        last_offset: Last offset of the batch before it.
        leader_epoch: Leader epoch of the batch before it.
        recovery_point: See `windows_and_damage`.
        bad_records: Finds batches that are lost because their records cannot be decoded; None accepts all records.

    Raises:
        NotALogDirectory: If the file cannot be read.
    """
    judge = _Judge(file, last_offset, leader_epoch)
    for part in windows_and_damage(file, file.begin, recovery_point):
        if isinstance(part, Damage):
            judge.pending_damage.append(part)
        else:
            yield from judge.add_window(part, bad_records)
    yield from judge.verdicts(judge.held, judge.fitting(judge.held))
    yield from judge.pending_damage


def end_of(row: Table) -> int:
    """Return the byte after a batch, from its row of a header table."""
    return int(row[HeaderColumn.POSITION] + row[HeaderColumn.SIZE])


class _Judge:
    """Judges the batches of one file, window by window.

    Attributes:
        held: Batches to be judged together with the next window.
        pending_damage: Damage at or after the first batch in `held`.
    """

    def __init__(self, file: SegmentFile, last_offset: int, leader_epoch: int) -> None:
        self._file = file
        self._last_offset = last_offset
        self._leader_epoch = leader_epoch
        self.held: Table = np.empty((0, len(HeaderColumn)), np.int64)
        self.pending_damage: deque[Damage] = deque()

    def add_window(self, window: Window, bad_records: FindBadRecords | None) -> Iterator[Kept | Damage]:
        """Add a window, and yield the verdicts on all batches except the last _HELD_BACK."""
        table = window.table.copy()
        if bad_records is not None:
            needed = end_of(table[-1]) - window.start
            if len(window.data) < needed:  # a window has only the header of a large batch
                window = Window(window.table, memoryview(self._file.read(window.start, needed)), window.start)
            is_bad = np.isin(table[:, HeaderColumn.POSITION], np.fromiter(bad_records(window), np.int64))
            self.pending_damage += [
                Damage(int(row[HeaderColumn.POSITION]), int(row[HeaderColumn.SIZE]), BAD_RECORDS)
                for row in table[is_bad]
            ]
            table = table[~is_bad]
        held = np.concatenate((self.held, table))
        done = max(len(held) - _HELD_BACK, 0)
        yield from self.verdicts(held[:done], self.fitting(held)[:done])
        self.held = held[done:]

    def fitting(self, table: Table) -> Rows:
        return fitting(table, self._file.base_offset, self._file.next_base_offset, self._last_offset)

    def verdicts(self, table: Table, keep: Rows) -> Iterator[Kept | Damage]:
        """Yield the batches of `table` in order, kept ones by `keep`, and the damage between them."""
        epochs = table[:, HeaderColumn.LEADER_EPOCH].copy()
        epochs[keep] = true_epochs(epochs[keep], self._leader_epoch)
        positions = table[:, HeaderColumn.POSITION]
        previous_ends = np.concatenate((positions[:1], positions[:-1] + table[:-1, HeaderColumn.SIZE]))
        breaks = np.flatnonzero(~keep | (positions != previous_ends))
        row = 0
        while row < len(table):
            while self.pending_damage and self.pending_damage[0].position < positions[row]:
                yield self.pending_damage.popleft()
            if not keep[row]:
                yield Damage(int(positions[row]), int(table[row, HeaderColumn.SIZE]), OFFSETS_INCONSISTENT)
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
    """Good batches that fill the bytes [position, end), with offsets base_offset to last_offset."""

    position: int
    end: int
    base_offset: int
    last_offset: int


@dataclass(slots=True, order=True)
class DamagedStretch:
    """Bytes [position, position + size) of a .log file between two good batches; `size` is 0 if the file was truncated.

    Attributes:
        error: What is wrong.
        path: Path of the .log file.
        first_offset: Offset after the good batch before the bytes.
        next_offset: Base offset of the next good batch, or of the next segment; None at the end of the log. Of the
            offsets in between, compaction may have removed some before.
        reaches_end_of_file: True if no good batch follows in the file.
    """

    position: int
    size: int
    error: str
    path: str
    first_offset: int
    next_offset: int | None
    reaches_end_of_file: bool = False


@dataclass(slots=True)
class JudgedSegment:
    """Good and damaged bytes of a segment, each in order."""

    runs: list[Run] = field(default_factory=list)
    stretches: list[DamagedStretch] = field(default_factory=list)


def judge_segment(file: SegmentFile, recovery_point: int | None) -> JudgedSegment:
    """Judge a whole segment. A torn tail does not count as damage.

    Args:
        file: The segment.
        recovery_point: See `windows_and_damage`.

    Raises:
        NotALogDirectory: If the file cannot be read.
    """
    judged = JudgedSegment()
    last_offset, open_stretch = file.first_offset - 1, False
    for part in judge_batches(file, last_offset, recovery_point=recovery_point):
        if isinstance(part, Damage):
            if part.is_torn_tail:
                continue
            if open_stretch:
                judged.stretches[-1].size = part.position + part.size - judged.stretches[-1].position
            else:
                judged.stretches.append(
                    DamagedStretch(
                        part.position, part.size, part.error, file.path, last_offset + 1, file.next_base_offset, True
                    )
                )
            open_stretch = True
            continue
        table = part.table
        # The header of a compressed v0 or v1 wrapper message has only the last offset of its messages.
        base = last_offset + 1 if table[0, HeaderColumn.COUNT] < 0 else int(table[0, HeaderColumn.BASE_OFFSET])
        last = int(table[-1, HeaderColumn.LAST_OFFSET])
        if open_stretch:
            judged.stretches[-1].next_offset, judged.stretches[-1].reaches_end_of_file = base, False
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
    """Add a stretch at the end of a file that ends with a good batch, if batches after it are provably missing.

    The proof is the recovery point for the last segment, and the offset index for all others.
    """
    if file.is_last:
        if recovery_point is None or recovery_point <= first:
            return
        proof = f"the log was flushed up to offset {recovery_point} (recovery-point-offset-checkpoint)"
    else:
        beyond = file.offset_index.ceiling_position(file.size)
        before = file.offset_index.floor_position(file.size - 1)
        # Trust the index only if its previous entry is correct: it may be garbage, or belong to another file.
        if beyond is None or not before.position or proven_entry(file, before) is None:
            return
        proof = f"its offset index names a batch at byte {beyond.position}"
    error = f"the file ends here, and {proof}"
    judged.stretches.append(DamagedStretch(file.size, 0, error, file.path, first, file.next_base_offset, True))
