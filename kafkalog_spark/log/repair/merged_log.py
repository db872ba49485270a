"""The log of a partition that is merged from its copies (replicas=merge).

`choose_copy` chooses the primary copy, as for any other read. `merged_pieces` fills its gaps from the other copies.

The pieces are computed once, on the driver, so the copies must not change during the read. A task gets the pieces of
its partition with the location.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.checkpoint import CLEANER_OFFSET_CHECKPOINT
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import NO_HINTS, OpenHints, PartitionLocation, PartitionLog
from kafkalog_spark.log.read.replica_choice import choose_copy
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.state_files import leader_epochs_or_empty, offset_checkpoint_or_empty
from kafkalog_spark.log.repair.merged_pieces import MergedPiece, merge_pieces
from kafkalog_spark.store.interface import Store

_log = logging.getLogger(__name__)


class MergedLog(PartitionLog):
    """Log of the pieces of a MergedLocation. Each piece counts as a segment.

    `directory` and `store` are those of the primary copy.
    """

    def __init__(self, location: MergedLocation, hints: OpenHints) -> None:
        self.pieces = location.pieces
        self._log_start_offset = location.log_start_offset
        # The pieces contain no torn tail, so that all bytes without a valid batch are damage.
        super().__init__(location, replace(hints, recovery_point=MAX_INT64))

    def _list(self) -> None:
        self._set_listing([], [replace(piece.files, base_offset=piece.first_offset) for piece in self.pieces])

    def refresh(self) -> None:
        """Do nothing: the pieces do not change."""

    def refresh_and_compare(self, file: SegmentFile) -> bool:
        """Return False: the files do not change, so an error is damage."""
        return False

    @property
    def log_start_offset(self) -> int:
        return self._log_start_offset

    @property
    def log_end(self) -> LogEnd:
        """End of the last piece, or its start if it is damaged and damage is skipped."""
        if not self.pieces:
            return LogEnd(self._log_start_offset, 0)
        last = self.pieces[-1]
        if last.is_damaged and self.pass_over_damage:
            return LogEnd(max(last.first_offset, self._log_start_offset), last.begin)
        return LogEnd(max(last.next_offset, self._log_start_offset), last.end)

    def _open_listed(self, index: int) -> SegmentFile:
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

    pieces: tuple[MergedPiece, ...] = ()
    log_start_offset: int = 0

    def open_without_checkpoints(self, hints: OpenHints = NO_HINTS) -> PartitionLog:
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
    """Merge the copies of a partition.

    Returns:
        The location of the merged log; the first of `copies` if all copies were deleted.

    Raises:
        OptionError: If a copy has segments in tiered storage.
    """
    for copy in copies:
        if copy.in_log_directory is not copy:
            raise OptionError(
                f"replicas=merge reads log directories only, but {copy.topic}-{copy.partition} has segments in tiered "
                "storage",
                hint="replicas=longest reads them",
            )
    chosen = choose_copy(copies, pass_over_damage=True)
    if chosen is None:
        return copies[0]
    first, by_epoch = chosen[0].location, sorted(chosen[1], key=lambda copy: -copy.epoch)
    ordered = [first, *(copy.location for copy in by_epoch if copy.location is not first)]
    logs = [copy.in_log_directory.open(pass_over_damage=True) for copy in ordered]
    lineage = sorted(leader_epochs_or_empty(first.store, first.directory), key=lambda entry: entry.start_offset)
    is_compacted = any(
        (first.topic, first.partition)
        in offset_checkpoint_or_empty(copy.store, copy.log_dir, CLEANER_OFFSET_CHECKPOINT)
        for copy in ordered
    )
    pieces = merge_pieces(logs, lineage, is_compacted=is_compacted)
    from_others = sum(piece.next_offset - piece.first_offset for piece in pieces if piece.is_from_other_copy)
    if from_others:
        _log.warning(
            "replicas=merge: %s-%d is read from %s, and %d of its offsets from other copies",
            first.topic, first.partition, first.directory, from_others,
        )  # fmt: skip
    deleted_up_to = max(log.hints.log_start or 0 for log in logs)
    start = max(pieces[0].first_offset if pieces else logs[0].log_start_offset, deleted_up_to)
    return MergedLocation(first.topic, first.partition, first.directory, first.store, pieces, start)
