"""Merge the copies of a partition into one log (replicas=merge).

The copy that a read chooses (`chosen_copy`) is the primary. What is damaged in it, or missing at its ends, is read from
the others, batch by batch: replication copies bytes, so every copy has the same batches at the same offsets wherever
they share a lineage. A batch from another copy is accepted only if its leader epoch is the primary's epoch at that
offset.

The pieces are computed once, on the driver, so the copies must not be written to meanwhile. A task gets the pieces of
its partition with the location.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import NotALogDirectory, OptionError
from kafkalog_spark.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, EpochEntry
from kafkalog_spark.format.layout import MAX_INT64, NO_LEADER_EPOCH, HeaderColumn
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.log.read.header_windows import Table
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import NO_HINTS, OpenHints, PartitionLocation, PartitionLog
from kafkalog_spark.log.read.replica_choice import chosen_copy
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.state_files import leader_epochs, offset_checkpoint
from kafkalog_spark.log.repair.damaged_segment import Damage
from kafkalog_spark.log.repair.judged_segment import (
    DamagedStretch,
    JudgedSegment,
    end_of,
    judge_batches,
    judge_segment,
)
from kafkalog_spark.store.interface import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes [begin, end) of a copy's segment, with the offsets [first_offset, next_offset) of the log.

    An empty piece marks the start of an empty last segment.

    Attributes:
        files: File names of the segment, in `directory`.
        is_damaged: True if the bytes have no valid batch, and no other copy has those offsets.
        from_other_copy: True if the piece is not from the primary copy.
    """

    directory: str
    store: Store
    files: SegmentFiles
    begin: int
    end: int
    first_offset: int
    next_offset: int
    is_damaged: bool = False
    from_other_copy: bool = False


class Gap(NamedTuple):
    """Offsets [first, end) that the primary copy lacks. `end` is MAX_INT64 if it is unknown."""

    first: int
    end: int


class _Merge:
    """Computes the pieces of a merged log.

    Args:
        logs: All copies, the primary first, opened with pass_over_damage.
        lineage: Leader epochs of the primary; empty if it has none.
    """

    def __init__(self, logs: Sequence[PartitionLog], lineage: Sequence[EpochEntry]) -> None:
        self.pieces: list[LogPiece] = []
        self._end = 0  # largest next_offset of the pieces
        self._logs = logs
        self._starts = np.array([entry.start_offset for entry in lineage], np.int64)
        self._epochs = np.array([entry.epoch for entry in lineage], np.int64)

    def run(self, *, is_compacted: bool) -> list[LogPiece]:
        """Return the pieces in order. Reads the whole primary, and the segments of the others that may fill gaps.

        Args:
            is_compacted: The cleaner may have removed offsets between segments, so these are not gaps.
        """
        log = self._logs[0]
        reached = min((other.segments[0].base_offset for other in self._logs if other.segments), default=0)
        for index, segment in enumerate(log.segments):
            base = segment.base_offset
            is_gap = reached < base and (index == 0 or not is_compacted)
            self._add_segment(index, [Gap(reached, base)] if is_gap else [])
            reached = max(reached, base, self._end)
        self._fill([Gap(reached, MAX_INT64)])
        base = log.segments[-1].base_offset if log.segments else 0
        if base > self._end:  # an empty last segment past the end
            self._add(0, len(log.segments) - 1, begin=0, end=0, first_offset=base, next_offset=base)
        return sorted(self.pieces, key=lambda piece: piece.first_offset)

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
        """Add bytes [begin, end) of segment number `segment` of copy number `copy`."""
        log = self._logs[copy]
        files = log.segments[segment]
        self.pieces.append(
            LogPiece(log.directory, log.store, files, begin, end, first_offset, next_offset, is_damaged, copy > 0)
        )
        self._end = max(self._end, next_offset)

    def _add_segment(self, index: int, gaps: list[Gap]) -> None:
        """Add a segment of the primary, and fill `gaps` and its damage from the others. An unreadable one is damage."""
        log = self._logs[0]
        try:
            with log.open_segment(index) as file:
                judged = judge_segment(file, log.recovery_point)
        except (FileNotFoundError, NotALogDirectory) as error:
            path, base = log.segment_path(index), log.segments[index].base_offset
            _log.warning("replicas=merge: %s is unreadable, trying other copies: %s", path, error)
            unreadable = DamagedStretch(0, 1, str(error), path, base, log.next_base_offset(index), True)
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
        damage_of: dict[Gap, DamagedStretch] = {}
        for stretch in judged.stretches:
            end = MAX_INT64 if stretch.next_offset is None else stretch.next_offset
            if stretch.first_offset < end:
                damage_of[Gap(stretch.first_offset, end)] = stretch
        for gap, remaining in self._fill([*gaps, *damage_of]).items():
            damage = damage_of.get(gap)
            if damage is None or not damage.size:
                continue
            for first, end in remaining:
                if end == MAX_INT64:
                    flushed = log.recovery_point or 0
                    if first > gap.first and first >= flushed:
                        continue  # the other copies have filled the gap, as far as is known
                    end = max(flushed, first + 1)  # the end is unknown: assume at least one offset
                self._add(
                    0,
                    index,
                    begin=damage.position,
                    end=damage.position + damage.size,
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
                gap: [rest for part in parts for rest in _rest(part, added)] for gap, parts in remaining.items()
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
                        if not isinstance(part, Damage):
                            self._add_batches(copy, index, part.table, last_offset, inside)
                            last_offset = int(part.table[-1, HeaderColumn.LAST_OFFSET])
            except (FileNotFoundError, NotALogDirectory) as error:
                _log.warning("replicas=merge: skipping %s: %s", log.segment_path(index), error)

    def _add_batches(self, copy: int, index: int, table: Table, last_offset: int, gaps: list[Gap]) -> None:
        """Add the batches of `table` that are in gaps and belong to the primary's lineage; adjacent ones as one piece.

        last_offset: Of the batch before the table.
        """
        last = table[:, HeaderColumn.LAST_OFFSET]
        base = np.where(
            table[:, HeaderColumn.COUNT] < 0,
            np.concatenate(([last_offset], last[:-1])) + 1,
            table[:, HeaderColumn.BASE_OFFSET],
        )
        firsts, ends = np.array(gaps, np.int64).T
        gap = np.searchsorted(firsts, base, side="right") - 1
        rows = np.flatnonzero((gap >= 0) & (last < ends[np.maximum(gap, 0)]) & self._of_lineage(table, base))
        breaks = np.flatnonzero((np.diff(rows) > 1) | (np.diff(gap[rows]) != 0)) + 1
        for run in np.split(rows, breaks) if len(rows) else ():
            begin, end = int(table[run[0], HeaderColumn.POSITION]), end_of(table[run[-1]])
            first_offset, next_offset = int(base[run[0]]), int(last[run[-1]]) + 1
            self._add(copy, index, begin=begin, end=end, first_offset=first_offset, next_offset=next_offset)

    def _of_lineage(self, table: Table, base: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
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


def _rest(gap: Gap, pieces: Sequence[LogPiece]) -> list[Gap]:
    """Return the parts of a gap that the pieces do not fill."""
    rest, reached = [], gap.first
    inside = [piece for piece in pieces if gap.first <= piece.first_offset < gap.end]
    for piece in sorted(inside, key=lambda piece: piece.first_offset):
        if piece.first_offset > reached:
            rest.append(Gap(reached, piece.first_offset))
        reached = piece.next_offset
    return [*rest, Gap(reached, gap.end)] if reached < gap.end else rest


class MergedLog(PartitionLog):
    """Log of the pieces of a MergedLocation. `directory` and `store` are those of the primary copy."""

    def __init__(self, location: MergedLocation, hints: OpenHints) -> None:
        self.pieces = location.pieces
        self._log_start = location.log_start
        # The merge has dropped torn tails: anything that is still damaged is damage.
        super().__init__(location, replace(hints, recovery_point=MAX_INT64))

    def _list(self) -> None:
        self._set_listing([], [replace(piece.files, base_offset=piece.first_offset) for piece in self.pieces])

    def refresh(self) -> None:
        """Do nothing: the pieces do not change."""

    def has_changed(self, file: SegmentFile) -> bool:
        """Return False: the files do not change, so an error is damage."""
        return False

    @property
    def log_start_offset(self) -> int:
        return self._log_start

    @property
    def log_end(self) -> LogEnd:
        """End of the last piece, or its start if it is damaged and damage is skipped."""
        if not self.pieces:
            return LogEnd(self._log_start, 0)
        last = self.pieces[-1]
        if last.is_damaged and self.pass_over_damage:
            return LogEnd(max(last.first_offset, self._log_start), last.begin)
        return LogEnd(max(last.next_offset, self._log_start), last.end)

    def _opened(self, index: int) -> SegmentFile:
        """Open the file of a piece, limited to the bytes of the piece."""
        piece, end = self.pieces[index], self.next_base_offset(index)
        file = SegmentFile.open(
            piece.store, piece.directory, piece.files, end, self.name, pass_over_damage=self.pass_over_damage
        )
        return file.part(piece.begin, piece.end, piece.first_offset)

    def segment_path(self, index: int) -> str:
        return os.path.join(self.pieces[index].directory, self.pieces[index].files.log)

    def size_of(self, index: int) -> int:
        return self.pieces[index].end - self.pieces[index].begin


@dataclass(frozen=True)
class MergedLocation(PartitionLocation):
    """Location of a merged partition. `directory` and `store` are those of the primary copy."""

    pieces: tuple[LogPiece, ...] = ()
    log_start: int = 0

    def open_unread(self, hints: OpenHints = NO_HINTS) -> PartitionLog:
        return MergedLog(self, hints)

    @property
    def stores(self) -> tuple[Store, ...]:
        return tuple({id(piece.store): piece.store for piece in self.pieces}.values()) or (self.store,)

    @property
    def has_checkpoints(self) -> bool:
        """False: the checkpoints were read when the copies were merged."""
        return False

    @property
    def local(self) -> PartitionLocation:
        return PartitionLocation(self.topic, self.partition, self.directory, self.store)


def merged_location(copies: Sequence[PartitionLocation]) -> PartitionLocation:
    """Merge the copies of a partition. Returns the first location if all copies are gone.

    Raises:
        OptionError: If a copy has segments in tiered storage.
    """
    for copy in copies:
        if copy.local is not copy:
            raise OptionError(
                f"replicas=merge reads log directories only, but {copy.topic}-{copy.partition} has segments in tiered "
                "storage",
                hint="replicas=longest reads them",
            )
    chosen = chosen_copy(copies, pass_over_damage=True)
    if chosen is None:
        return copies[0]
    first, by_epoch = chosen[0].location, sorted(chosen[1], key=lambda copy: -copy.epoch)
    ordered = [first, *(copy.location for copy in by_epoch if copy.location is not first)]
    logs = [copy.local.open(pass_over_damage=True) for copy in ordered]
    lineage = sorted(leader_epochs(first.store, first.directory), key=lambda entry: entry.start_offset)
    is_compacted = any(
        (first.topic, first.partition) in offset_checkpoint(copy.store, copy.log_dir, CLEANER_OFFSET_CHECKPOINT)
        for copy in ordered
    )
    pieces = tuple(_Merge(logs, lineage).run(is_compacted=is_compacted))
    from_others = sum(piece.next_offset - piece.first_offset for piece in pieces if piece.from_other_copy)
    if from_others:
        _log.warning(
            "replicas=merge: %s-%d is read from %s, and %d of its offsets from other copies",
            first.topic, first.partition, first.directory, from_others,
        )  # fmt: skip
    deleted_to = max(log.hints.log_start or 0 for log in logs)
    start = max(pieces[0].first_offset if pieces else logs[0].log_start_offset, deleted_to)
    return MergedLocation(first.topic, first.partition, first.directory, first.store, pieces, start)
