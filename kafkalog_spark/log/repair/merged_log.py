"""Copies of one partition as one log, to those who read it: its segments are pieces of the copies' segments.

What was found when the copies were put together stays: nobody may be writing to them. A task gets the pieces of its
partition with its place, and opens nothing else.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.format.checkpoint import CLEANER_OFFSET_CHECKPOINT
from kafkalog_spark.log.format.layout import MAX_INT64
from kafkalog_spark.log.format.names import SegmentFiles
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.replicas import TopicPartition, check_one_topic, chosen_copy
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.small_files import leader_epochs, offset_checkpoint
from kafkalog_spark.log.repair.merged_copies import Piece, merged_pieces
from kafkalog_spark.log.store.interface import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PieceOfCopy:
    """A piece with where its bytes are. next_base_offset: of its segment in its own log."""

    piece: Piece
    directory: str
    store: Store
    files: SegmentFiles


class MergedLog(PartitionLog):
    """The log that pieces make. Arguments as of PartitionLog; directory, store: of the copy that counts."""

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: str,
        store: Store,
        pieces: Sequence[PieceOfCopy],
        log_start: int,
        *,
        pass_over_damage: bool = False,
    ) -> None:
        self.pieces = pieces
        self._log_start = log_start
        # torn tails were left out when the copies were put together: what is a damaged piece is damage
        super().__init__(
            topic, partition, directory, store, recovery_point=MAX_INT64, pass_over_damage=pass_over_damage
        )

    def _list(self) -> None:
        self._take([], [replace(one.files, base_offset=one.piece.first_offset) for one in self.pieces])

    def refresh(self) -> None:
        """Nothing is looked for again."""

    def has_changed(self, file: SegmentFile) -> bool:
        """Never: what is wrong with a file is damage."""
        return False

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers may see."""
        return self._log_start

    @property
    def log_end(self) -> LogEnd:
        """Where the last piece ends; where it begins if it is damage, and that is passed over."""
        if not self.pieces:
            return LogEnd(self._log_start, 0)
        last = self.pieces[-1].piece
        if last.is_damaged and self.pass_over_damage:
            return LogEnd(max(last.first_offset, self._log_start), last.begin)
        return LogEnd(max(last.next_offset, self._log_start), last.end)

    def open_segment(self, index: int) -> SegmentFile:
        """As of PartitionLog: the file of a piece, as if it held nothing else."""
        one = self.pieces[index]
        following = self.next_base_offset(index)
        try:
            file = SegmentFile.open(
                one.store, one.directory, one.files, following, self.name, pass_over_damage=self.pass_over_damage
            )
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._cannot_open(self.segment_path(index), error) from error
        return file.part(one.piece.begin, one.piece.end, one.piece.first_offset)

    def segment_path(self, index: int) -> str:
        """As of PartitionLog."""
        one = self.pieces[index]
        return os.path.join(one.directory, one.files.log)

    def size_of(self, index: int) -> int:
        """Bytes of a piece."""
        return self.pieces[index].piece.end - self.pieces[index].piece.begin


@dataclass(frozen=True)
class MergedPlace(PartitionPlace):
    """Where the pieces of a partition lie. directory, store: of the copy that counts."""

    pieces: tuple[PieceOfCopy, ...] = ()
    log_start: int = 0

    def open_unread(
        self,
        *,
        recovery_point: int | None = None,
        log_start_checkpoint: int | None = None,
        pass_over_damage: bool = False,
        known_end: LogEnd | None = None,
    ) -> PartitionLog:
        """The log that the pieces make; what checkpoints say has been asked."""
        return MergedLog(
            self.topic, self.partition, self.directory, self.store, self.pieces, self.log_start,
            pass_over_damage=pass_over_damage,
        )  # fmt: skip

    @property
    def stores(self) -> tuple[Store, ...]:
        """As of PartitionPlace."""
        return tuple({id(one.store): one.store for one in self.pieces}.values()) or (self.store,)

    @property
    def has_checkpoints(self) -> bool:
        """As of PartitionPlace: they have been asked."""
        return False

    @property
    def local(self) -> PartitionPlace:
        """The copy that counts, alone."""
        return PartitionPlace(self.topic, self.partition, self.directory, self.store)


def merged_places(
    places: Mapping[TopicPartition, PartitionPlace],
    copies: Mapping[TopicPartition, Sequence[PartitionPlace]],
    wanted: Collection[TopicPartition],
) -> dict[TopicPartition, PartitionPlace]:
    """Where to read each of the `wanted` partitions: of those with several copies, what these make together. Reads
    their bytes. Raises OptionError as merged_place; NotALogDirectory, as chosen_places."""
    check_one_topic(places, copies, wanted)
    return {tp: merged_place(copies[tp]) if tp in copies else places[tp] for tp in wanted}


def merged_place(copies: Sequence[PartitionPlace]) -> PartitionPlace:
    """The copies of one partition as one place. Raises OptionError where segments are in tiered storage."""
    for place in copies:
        if place.local is not place:
            raise OptionError(
                f"replicas=merge is of log directories alone, and segments of {place.topic}-{place.partition} are in "
                "tiered storage",
                hint="replicas=longest reads them",
            )
    chosen = chosen_copy(copies, pass_over_damage=True)
    if chosen is None:
        return copies[0]
    first, ordered = chosen[0].place, sorted(chosen[1], key=lambda copy: -copy.epoch)
    others = [copy.place for copy in ordered if copy.place is not first]
    logs = [place.local.open(pass_over_damage=True) for place in (first, *others)]
    lineage = sorted(leader_epochs(first.store, first.directory), key=lambda entry: entry.start_offset)
    cleaned = any(
        (first.topic, first.partition) in offset_checkpoint(place.store, place.log_dir, CLEANER_OFFSET_CHECKPOINT)
        for place in (first, *others)
    )
    pieces = merged_pieces(logs, lineage, is_compacted=cleaned)
    found = tuple(
        PieceOfCopy(piece, log.directory, log.store, log.segments[piece.segment])
        for piece in pieces
        for log in (logs[piece.copy],)
    )
    taken = sum(piece.next_offset - piece.first_offset for piece in pieces if piece.copy)
    if taken:
        _log.warning(
            "replicas=merge: %s-%d is read from %s, and %d offsets of it from other copies",
            first.topic, first.partition, first.directory, taken,
        )  # fmt: skip
    deleted_to = max(log.log_start_checkpoint or 0 for log in logs)
    start = max(pieces[0].first_offset if pieces else logs[0].log_start_offset, deleted_to)
    return MergedPlace(first.topic, first.partition, first.directory, first.store, found, start)
