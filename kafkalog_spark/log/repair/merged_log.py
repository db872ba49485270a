"""Copies of one partition put together to one log: replicas=merge.

The copy that a read would take (`discovery.chosen_copy`) is the log. What is damaged in it, or missing at its ends, is
taken from the others, batch by batch: replication copies bytes, so every copy has the same batches at the same offsets,
as far as they are of one lineage. A batch of another copy counts where its leader epoch is the one that the log's
leader epochs name for its offset.

The pieces are settled once: nobody may be writing to the copies. A task gets those of its partition with its location.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import NotALogDirectory, OptionError
from kafkalog_spark.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, EpochEntry
from kafkalog_spark.format.layout import MAX_INT64, NO_LEADER_EPOCH, HeaderColumn
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.log.read.batch_search import LogEnd
from kafkalog_spark.log.read.discovery import chosen_copy
from kafkalog_spark.log.read.partition_log import (
    NO_HINTS,
    OpenHints,
    PartitionLocation,
    PartitionLog,
    leader_epochs,
    offset_checkpoint,
)
from kafkalog_spark.log.read.segment_file import SegmentFile, Table
from kafkalog_spark.log.repair.damaged_segment import Damage
from kafkalog_spark.log.repair.judged_segment import JudgedSegment, Stretch, end_of, judged_batches, judged_segment
from kafkalog_spark.store.interface import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes [begin, end) of a copy's segment, which hold the offsets [first_offset, next_offset) of the log, or,
    is_damaged, are no good batches of them, of which no copy has any. A piece without bytes is where an empty last
    segment begins. from_other_copy: not of the copy that counts."""

    directory: str
    store: Store
    files: SegmentFiles
    begin: int
    end: int
    first_offset: int
    next_offset: int
    is_damaged: bool = False
    from_other_copy: bool = False


Gap = tuple[int, int]
"""Offsets [first, end) that the first copy lacks; MAX_INT64 for an end that is not known."""


class _Merge:
    """logs: of all copies, opened with pass_over_damage, the one that counts first. lineage: its epochs, if any."""

    def __init__(self, logs: Sequence[PartitionLog], lineage: Sequence[EpochEntry]) -> None:
        self.pieces: list[LogPiece] = []
        self._logs = logs
        self._starts = np.array([entry.start_offset for entry in lineage], np.int64)
        self._epochs = np.array([entry.epoch for entry in lineage], np.int64)

    def run(self, *, is_compacted: bool) -> list[LogPiece]:
        """is_compacted: holes between segments are the cleaner's. Reads all bytes of the first copy, and of the others
        the segments that may fill a gap."""
        log = self._logs[0]
        reached = min((other.segments[0].base_offset for other in self._logs if other.segments), default=0)
        for index, segment in enumerate(log.segments):
            base = segment.base_offset
            self._add_segment(index, [(reached, base)] if reached < base and (index == 0 or not is_compacted) else [])
            reached = max(reached, base, self._end)
        self._fill([(reached, MAX_INT64)])
        base = log.segments[-1].base_offset if log.segments else 0
        if base > self._end:  # the log goes on there, whatever was deleted before it
            self._add(0, len(log.segments) - 1, 0, 0, base, base)
        return sorted(self.pieces, key=lambda piece: piece.first_offset)

    @property
    def _end(self) -> int:
        return max((piece.next_offset for piece in self.pieces), default=0)

    def _add(
        self, copy: int, segment: int, begin: int, end: int, first_offset: int, next_offset: int, damaged: bool = False
    ) -> None:
        log = self._logs[copy]
        files = log.segments[segment]
        self.pieces.append(
            LogPiece(log.directory, log.store, files, begin, end, first_offset, next_offset, damaged, copy > 0)
        )

    def _add_segment(self, index: int, gaps: list[Gap]) -> None:
        """A segment of the first copy, with its damage and the gaps before it filled. An unreadable one is damage."""
        log = self._logs[0]
        try:
            with log.open_segment(index) as file:
                judged = judged_segment(file, log.recovery_point)
        except (FileNotFoundError, NotALogDirectory) as error:
            path, base = log.segment_path(index), log.segments[index].base_offset
            _log.warning("replicas=merge: %s is looked for in other copies: %s", path, error)
            judged = JudgedSegment([], [Stretch(0, 1, str(error), path, base, log.next_base_offset(index), True)])
        for run in judged.runs:
            self._add(0, index, run.position, run.end, run.base_offset, run.last_offset + 1)
        damage_of: dict[Gap, Stretch] = {}
        for stretch in judged.stretches:
            end = MAX_INT64 if stretch.next_offset is None else stretch.next_offset
            if stretch.first_offset < end:
                damage_of[stretch.first_offset, end] = stretch
        for gap, left in self._fill([*gaps, *damage_of]).items():
            damage = damage_of.get(gap)
            if damage is None or not damage.size:
                continue
            for first, end in left:
                if end == MAX_INT64:
                    flushed = log.recovery_point or 0
                    if first > gap[0] and first >= flushed:
                        continue  # other copies have all that was there
                    end = max(flushed, first + 1)  # nobody knows more of it than that it was there
                self._add(0, index, damage.position, damage.position + damage.size, first, end, True)

    def _fill(self, gaps: list[Gap]) -> dict[Gap, list[Gap]]:
        """Add what the other copies have of the gaps; what none of them has, by gap."""
        left = {gap: [gap] for gap in gaps}
        for copy in range(1, len(self._logs)):
            missing = sorted(hole for holes in left.values() for hole in holes)
            if not missing:
                break
            before = len(self.pieces)
            self._fill_from(copy, missing)
            added = self.pieces[before:]
            left = {gap: [rest for hole in holes for rest in _holes(hole, added)] for gap, holes in left.items()}
        return left

    def _fill_from(self, copy: int, gaps: list[Gap]) -> None:
        log = self._logs[copy]
        for index, segment in enumerate(log.segments):
            end = log.next_base_offset(index)
            inside = [gap for gap in gaps if gap[1] > segment.base_offset and (end is None or gap[0] < end)]
            if not inside:
                continue
            try:
                with log.open_segment(index) as file:
                    last_offset = file.base_offset - 1
                    for part in judged_batches(file, last_offset, recovery_point=log.recovery_point):
                        if not isinstance(part, Damage):
                            self._add_batches(copy, index, part.table, last_offset, inside)
                            last_offset = int(part.table[-1, HeaderColumn.LAST_OFFSET])
            except (FileNotFoundError, NotALogDirectory) as error:
                _log.warning("replicas=merge: %s is not looked into: %s", log.segment_path(index), error)

    def _add_batches(self, copy: int, index: int, table: Table, last_offset: int, gaps: list[Gap]) -> None:
        """Add the batches that lie in gaps and are of the log's lineage, neighbours as one piece."""
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
            self._add(copy, index, begin, end, int(base[run[0]]), int(last[run[-1]]) + 1)

    def _of_lineage(self, table: Table, base: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """bool[n]: whether each batch's leader epoch is that of the log at its offset."""
        epochs = table[:, HeaderColumn.LEADER_EPOCH]
        if not len(self._starts):
            return np.ones(len(table), bool)
        slots = np.searchsorted(self._starts, base, side="right") - 1
        expected = self._epochs[np.maximum(slots, 0)]
        # below the first start that is known, any epoch up to the first one
        fits: npt.NDArray[np.bool_] = epochs == expected
        fits |= ((slots < 0) & (epochs <= expected)) | (epochs == NO_LEADER_EPOCH)
        return fits


def _holes(gap: Gap, pieces: Sequence[LogPiece]) -> list[Gap]:
    """Gaps that remain between the pieces inside a gap."""
    left, reached = [], gap[0]
    inside = [piece for piece in pieces if gap[0] <= piece.first_offset < gap[1]]
    for piece in sorted(inside, key=lambda piece: piece.first_offset):
        if piece.first_offset > reached:
            left.append((reached, piece.first_offset))
        reached = piece.next_offset
    return [*left, (reached, gap[1])] if reached < gap[1] else left


class MergedLog(PartitionLog):
    """The log that pieces make. directory, store: of the copy that counts."""

    def __init__(self, location: MergedLocation, hints: OpenHints) -> None:
        self.pieces = location.pieces
        self._log_start = location.log_start
        # torn tails were left out when the copies were put together: what is a damaged piece is damage
        super().__init__(location, replace(hints, recovery_point=MAX_INT64))

    def _list(self) -> None:
        self._take([], [replace(piece.files, base_offset=piece.first_offset) for piece in self.pieces])

    def refresh(self) -> None:
        """Nothing: the pieces are settled."""

    def has_changed(self, file: SegmentFile) -> bool:
        """Never: what is wrong with a file is damage."""
        return False

    @property
    def log_start_offset(self) -> int:
        return self._log_start

    @property
    def log_end(self) -> LogEnd:
        """Where the last piece ends; where it begins if it is damage, and that is passed over."""
        if not self.pieces:
            return LogEnd(self._log_start, 0)
        last = self.pieces[-1]
        if last.is_damaged and self.pass_over_damage:
            return LogEnd(max(last.first_offset, self._log_start), last.begin)
        return LogEnd(max(last.next_offset, self._log_start), last.end)

    def _opened(self, index: int) -> SegmentFile:
        """The file of a piece, as if it held nothing else."""
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
    """Where the pieces of a partition lie. directory, store: of the copy that counts."""

    pieces: tuple[LogPiece, ...] = ()
    log_start: int = 0

    def open_unread(self, hints: OpenHints = NO_HINTS) -> PartitionLog:
        return MergedLog(self, hints)

    @property
    def stores(self) -> tuple[Store, ...]:
        return tuple({id(piece.store): piece.store for piece in self.pieces}.values()) or (self.store,)

    @property
    def has_checkpoints(self) -> bool:
        """See PartitionLocation: they were read when the copies were put together."""
        return False

    @property
    def local(self) -> PartitionLocation:
        return PartitionLocation(self.topic, self.partition, self.directory, self.store)


def merged_location(copies: Sequence[PartitionLocation]) -> PartitionLocation:
    """Raises OptionError where segments are in tiered storage."""
    for copy in copies:
        if copy.local is not copy:
            raise OptionError(
                f"replicas=merge is of log directories alone, and segments of {copy.topic}-{copy.partition} are in "
                "tiered storage",
                hint="replicas=longest reads them",
            )
    chosen = chosen_copy(copies, pass_over_damage=True)
    if chosen is None:
        return copies[0]
    first, by_epoch = chosen[0].place, sorted(chosen[1], key=lambda copy: -copy.epoch)
    ordered = [first, *(copy.place for copy in by_epoch if copy.place is not first)]
    logs = [copy.local.open(pass_over_damage=True) for copy in ordered]
    lineage = sorted(leader_epochs(first.store, first.directory), key=lambda entry: entry.start_offset)
    is_compacted = any(
        (first.topic, first.partition) in offset_checkpoint(copy.store, copy.log_dir, CLEANER_OFFSET_CHECKPOINT)
        for copy in ordered
    )
    pieces = tuple(_Merge(logs, lineage).run(is_compacted=is_compacted))
    taken = sum(piece.next_offset - piece.first_offset for piece in pieces if piece.from_other_copy)
    if taken:
        _log.warning(
            "replicas=merge: %s-%d is read from %s, and %d offsets of it from other copies",
            first.topic, first.partition, first.directory, taken,
        )  # fmt: skip
    deleted_to = max(log.hints.log_start or 0 for log in logs)
    start = max(pieces[0].first_offset if pieces else logs[0].log_start_offset, deleted_to)
    return MergedLocation(first.topic, first.partition, first.directory, first.store, pieces, start)
