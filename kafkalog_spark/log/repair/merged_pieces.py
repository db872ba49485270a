"""Pieces of a merged log: bytes of one copy of a partition, or of several, which together have the offsets of the log.

The pieces come from the primary copy. Offsets that are damaged or missing there are filled from the other copies, batch
by batch: replication copies bytes, so every copy has the same batches at the same offsets wherever the copies share a
lineage. A batch of another copy is accepted only if its leader epoch is the primary's epoch at that offset.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.layout import MAX_INT64, NO_LEADER_EPOCH, HeaderColumn
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.log.read.header_windows import HeaderTable, batch_end
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.repair.batch_verdicts import KeptBatches, judge_batches
from kafkalog_spark.log.repair.judged_segment import DamagedStretch, JudgedSegment, judge_segment
from kafkalog_spark.store.interface import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MergedPiece:
    """Bytes [begin, end) of a copy's segment, with the offsets [first_offset, next_offset) of the log.

    A piece without bytes has the start offset of an empty last segment.

    Attributes:
        directory: Partition directory of the copy.
        store: Its store.
        files: File names of the segment.
        is_damaged: True if the bytes have no valid batch, and no other copy has these offsets.
        is_from_other_copy: True if the piece is not from the primary copy.
    """

    directory: str
    store: Store
    files: SegmentFiles
    begin: int
    end: int
    first_offset: int
    next_offset: int
    is_damaged: bool = False
    is_from_other_copy: bool = False


class Gap(NamedTuple):
    """Offsets [first, end) that the primary copy lacks. `end` is MAX_INT64 if it is unknown."""

    first: int
    end: int


def merge_pieces(
    logs: Sequence[PartitionLog], lineage: Sequence[EpochEntry], *, is_compacted: bool
) -> tuple[MergedPiece, ...]:
    """Return the pieces of a merged log in order.

    Reads the whole primary copy, and the segments of the other copies that may fill gaps.

    Args:
        logs: All copies, the primary first, opened with pass_over_damage.
        lineage: Leader epochs of the primary; empty if it has none.
        is_compacted: The cleaner may have removed offsets between segments, so these are not gaps.
    """
    return tuple(_Merge(logs, lineage).run(is_compacted=is_compacted))


class _Merge:
    """Computes the pieces. The arguments are those of `merge_pieces`."""

    def __init__(self, logs: Sequence[PartitionLog], lineage: Sequence[EpochEntry]) -> None:
        self.pieces: list[MergedPiece] = []
        self._next_offset = 0  # the largest one of the pieces
        self._logs = logs
        self._starts = np.array([entry.start_offset for entry in lineage], np.int64)
        self._epochs = np.array([entry.epoch for entry in lineage], np.int64)

    def run(self, *, is_compacted: bool) -> list[MergedPiece]:
        log = self._logs[0]
        reached = min((other.segments[0].base_offset for other in self._logs if other.segments), default=0)
        for index, segment in enumerate(log.segments):
            base = segment.base_offset
            is_gap = reached < base and (index == 0 or not is_compacted)
            self._add_segment(index, [Gap(reached, base)] if is_gap else [])
            reached = max(reached, base, self._next_offset)
        self._fill([Gap(reached, MAX_INT64)])
        base = log.segments[-1].base_offset if log.segments else 0
        if base > self._next_offset:  # the last segment is empty
            self._add(0, len(log.segments) - 1, begin=0, end=0, first_offset=base, next_offset=base)
        return sorted(self.pieces, key=lambda piece: piece.first_offset)

    def _add_segment(self, index: int, gaps: list[Gap]) -> None:
        """Add a segment of the primary, and fill `gaps` and the damage in it from the other copies.

        A segment that cannot be read counts as damaged as a whole.
        """
        log = self._logs[0]
        try:
            with log.open_segment(index) as file:
                judged = judge_segment(file, log.recovery_point)
        except (FileNotFoundError, NotALogDirectory) as error:
            path, base = log.segment_path(index), log.segments[index].base_offset
            _log.warning("replicas=merge: %s is unreadable, trying other copies: %s", path, error)
            unreadable = DamagedStretch(
                0, 1, str(error), path, base, log.next_base_offset(index), reaches_end_of_file=True
            )
            judged = JudgedSegment([], [unreadable])
        for run in judged.runs:
            self._add(
                0,
                index,
                begin=run.position,
                end=run.end,
                first_offset=run.base_offset,
                next_offset=run.last_offset + 1,
            )
        stretch_of: dict[Gap, DamagedStretch] = {}
        for damaged in judged.stretches:
            end = MAX_INT64 if damaged.next_offset is None else damaged.next_offset
            if damaged.first_offset < end:
                stretch_of[Gap(damaged.first_offset, end)] = damaged
        for gap, remaining in self._fill([*gaps, *stretch_of]).items():
            stretch = stretch_of.get(gap)
            if stretch is None or not stretch.size:
                continue
            for first, end in remaining:
                if end == MAX_INT64:
                    flushed = log.recovery_point or 0
                    if first > gap.first and first >= flushed:
                        continue  # the other copies have filled the gap, up to their own ends
                    end = max(flushed, first + 1)  # the end is unknown: assume at least one lost offset
                self._add(
                    0,
                    index,
                    begin=stretch.position,
                    end=stretch.position + stretch.size,
                    first_offset=first,
                    next_offset=end,
                    is_damaged=True,
                )

    def _fill(self, gaps: list[Gap]) -> dict[Gap, list[Gap]]:
        """Fill the gaps from the other copies, and return what remains of each gap."""
        remaining = {gap: [gap] for gap in gaps}
        for copy in range(1, len(self._logs)):
            missing = sorted(part for parts in remaining.values() for part in parts)
            if not missing:
                break
            before = len(self.pieces)
            self._fill_from(copy, missing)
            added = self.pieces[before:]
            remaining = {
                gap: [unfilled for part in parts for unfilled in _unfilled(part, added)]
                for gap, parts in remaining.items()
            }
        return remaining

    def _fill_from(self, copy: int, gaps: list[Gap]) -> None:
        """Add the batches of copy number `copy` that are in gaps."""
        log = self._logs[copy]
        for index, segment in enumerate(log.segments):
            end = log.next_base_offset(index)
            inside = [gap for gap in gaps if gap.end > segment.base_offset and (end is None or gap.first < end)]
            if not inside:
                continue
            try:
                with log.open_segment(index) as file:
                    last_offset = file.base_offset - 1
                    for part in judge_batches(file, last_offset, recovery_point=log.recovery_point):
                        if isinstance(part, KeptBatches):
                            self._add_batches(copy, index, part.table, last_offset, inside)
                            last_offset = int(part.table[-1, HeaderColumn.LAST_OFFSET])
            except (FileNotFoundError, NotALogDirectory) as error:
                _log.warning("replicas=merge: skipping %s: %s", log.segment_path(index), error)

    def _add_batches(self, copy: int, index: int, table: HeaderTable, last_offset: int, gaps: list[Gap]) -> None:
        """Add the batches of `table` that are in gaps and belong to the primary's lineage.

        Adjacent batches become one piece. last_offset: that of the batch before the table.
        """
        last = table[:, HeaderColumn.LAST_OFFSET]
        # The header of a compressed v0 or v1 wrapper message has only the last offset of its messages.
        base = np.where(
            table[:, HeaderColumn.COUNT] < 0,
            np.concatenate(([last_offset], last[:-1])) + 1,
            table[:, HeaderColumn.BASE_OFFSET],
        )
        firsts, ends = np.array(gaps, np.int64).T
        gap = np.searchsorted(firsts, base, side="right") - 1  # index of the gap that may hold each batch; -1 if none
        rows = np.flatnonzero((gap >= 0) & (last < ends[np.maximum(gap, 0)]) & self._is_of_lineage(table, base))
        breaks = np.flatnonzero((np.diff(rows) > 1) | (np.diff(gap[rows]) != 0)) + 1
        for run in np.split(rows, breaks) if len(rows) else ():
            begin, end = int(table[run[0], HeaderColumn.POSITION]), batch_end(table[run[-1]])
            first_offset, next_offset = int(base[run[0]]), int(last[run[-1]]) + 1
            self._add(copy, index, begin=begin, end=end, first_offset=first_offset, next_offset=next_offset)

    def _is_of_lineage(self, table: HeaderTable, base: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return whether each batch's leader epoch is the primary's epoch at its base offset, bool[n]."""
        epochs = table[:, HeaderColumn.LEADER_EPOCH]
        if not len(self._starts):
            return np.ones(len(table), bool)
        slots = np.searchsorted(self._starts, base, side="right") - 1
        expected = self._epochs[np.maximum(slots, 0)]
        # Before the first known epoch, any lower epoch fits.
        fits: npt.NDArray[np.bool_] = epochs == expected
        fits |= ((slots < 0) & (epochs <= expected)) | (epochs == NO_LEADER_EPOCH)
        return fits

    def _add(
        self,
        copy: int,
        segment: int,
        *,
        begin: int,
        end: int,
        first_offset: int,
        next_offset: int,
        is_damaged: bool = False,
    ) -> None:
        """Add bytes [begin, end) of segment number `segment` of copy number `copy`; 0 is the primary."""
        log = self._logs[copy]
        self.pieces.append(
            MergedPiece(
                log.directory,
                log.store,
                log.segments[segment],
                begin,
                end,
                first_offset,
                next_offset,
                is_damaged,
                is_from_other_copy=copy > 0,
            )
        )
        self._next_offset = max(self._next_offset, next_offset)


def _unfilled(gap: Gap, pieces: Sequence[MergedPiece]) -> list[Gap]:
    """Return the parts of a gap that the pieces do not fill."""
    unfilled, reached = [], gap.first
    inside = [piece for piece in pieces if gap.first <= piece.first_offset < gap.end]
    for piece in sorted(inside, key=lambda piece: piece.first_offset):
        if piece.first_offset > reached:
            unfilled.append(Gap(reached, piece.first_offset))
        reached = piece.next_offset
    return [*unfilled, Gap(reached, gap.end)] if reached < gap.end else unfilled
