"""A partition whose log lies in remote storage, or partly there: one log, put together by leader epochs.

To those who read it, it is a PartitionLog: segments in order, where it starts and ends. Its segments are parts: a local
segment each, or as much of a remote one as no local one holds. All segments of a lineage hold the same records at the
same offsets, so a remote file keeps its own offsets when it is opened: reading past the end of a part changes nothing.
"""

from __future__ import annotations

import logging
import os
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property

from kafkalog_spark.errors import KafkalogError, NotALogDirectory
from kafkalog_spark.log.format.producer_snapshot import ProducerEntry
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import IndexedRun, PartitionLog
from kafkalog_spark.log.read.remote_aborts import runs_of
from kafkalog_spark.log.read.remote_dir_listing import RemoteDirListing
from kafkalog_spark.log.read.remote_metadata import RemoteMetadata
from kafkalog_spark.log.read.remote_segment_file import HeldSegment, leader_epochs_of, open_remote, producers_after
from kafkalog_spark.log.read.root_places import RemoteDir
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.small_files import Checkpoints, leader_epochs, topic_id
from kafkalog_spark.log.read.tiered_parts import KnownLog, Part, parts_of, spans_of
from kafkalog_spark.log.store.interface import Store
from kafkalog_spark.log.tiered.lineage import Lineage, newest, without_empty_epochs
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.log.tiered.remote_walk import LogWalk, topic_id_of, walk_log
from kafkalog_spark.log.tiered.tier_options import TierOptions

_log = logging.getLogger(__name__)


class TieredLog(PartitionLog):
    """The log of a partition in a local directory (None: there is none), and in remote ones.

    Arguments as of PartitionLog. known: instead of listing; a refresh lists. Raises NotALogDirectory, and what reading
    manifests raises.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: str,
        store: Store,
        *,
        is_local: bool,
        remote: Sequence[RemoteDir],
        options: TierOptions,
        metadata: RemoteMetadata | None = None,
        recovery_point: int | None = None,
        log_start_checkpoint: int | None = None,
        pass_over_damage: bool = False,
        known_end: LogEnd | None = None,
        known: KnownLog | None = None,
    ) -> None:
        self.walk: LogWalk | None = None
        self._is_local = is_local
        self._options = options
        self._metadata = metadata
        self._known = known
        self._local: PartitionLog | None = None
        self._remote = [RemoteDirListing(place, options, pass_over_damage=pass_over_damage) for place in remote]
        self._parts: list[Part] = []
        super().__init__(
            topic,
            partition,
            directory,
            store,
            recovery_point=recovery_point,
            log_start_checkpoint=log_start_checkpoint,
            pass_over_damage=pass_over_damage,
            known_end=known_end,
        )

    # ---- what there is

    def refresh(self) -> None:
        """As of PartitionLog: every directory again, and what `__remote_log_metadata` says by now."""
        self.__dict__.pop("log_end", None)
        if self._known is not None and self._is_local:
            said, tp, log_dir = Checkpoints(), (self.topic, self.partition), os.path.dirname(self.directory)
            self.recovery_point = said.recovery_point(self.store, log_dir, tp)
            self._log_start_checkpoint = said.log_start(self.store, log_dir, tp)
        self._known = None
        if self._local is not None:
            self._local.refresh()
        self._list(again=True)

    def follow(self, *, recovery_point: int | None, log_start_checkpoint: int | None) -> None:
        """As of PartitionLog."""
        super().follow(recovery_point=recovery_point, log_start_checkpoint=log_start_checkpoint)
        if self._local is not None:
            self._local.follow(recovery_point=recovery_point, log_start_checkpoint=log_start_checkpoint)

    def _list(self, *, again: bool = False) -> None:
        if self._known is not None:
            self._take_parts(self._known.parts)
            self.names = []
            return
        if self._is_local and self._local is None:
            self._local = PartitionLog(
                self.topic,
                self.partition,
                self.directory,
                self.store,
                recovery_point=self.recovery_point,
                log_start_checkpoint=self._log_start_checkpoint,
                pass_over_damage=self.pass_over_damage,
                known_end=self._known_end,
            )
        local = self._live_local
        living = topic_id(local.store, local.directory) if local is not None else None
        held = self._held_segments(local, living, again=again)
        by_id = {one.segment.segment_id: one for one in held}
        lineage = self._lineage(local, held)
        spans = spans_of(local) if local is not None else []
        remote = [one.segment for one in held]
        self.walk = walk_log(
            remote,
            lineage,
            local=spans,
            topic_id=living or topic_id_of(remote),
            log_start=self._log_start_checkpoint,
            log_end=_log_end_for(local, remote),
        )
        self._tell_of(self.walk)
        self._take_parts(parts_of(self.walk, by_id, local))
        self.gone = local is None and not any(listing.exists for listing in self._remote)
        if local is not None:
            self.names, self.facts = local.names, local.facts
        elif self._remote:
            self.names, self.facts = self._remote[0].names, self._remote[0].facts

    @property
    def _live_local(self) -> PartitionLog | None:
        local = self._local
        return local if local is not None and not local.gone and local.segments else None

    def _held_segments(self, local: PartitionLog | None, living: uuid.UUID | None, *, again: bool) -> list[HeldSegment]:
        """Of all remote directories, or of those of the `living` topic; what the local log holds is not asked for."""
        held: list[HeldSegment] = []
        for listing in self._remote:
            if living is not None and listing.place.topic_id != living:
                continue
            try:
                partition = listing.place.topic_id_partition
                known = None if self._metadata is None else self._metadata.of(partition, again=again)
                held += listing.look(known, below=local.segments[0].base_offset if local is not None else None)
            except OSError as error:
                raise NotALogDirectory(
                    f"the partition's remote segments cannot be listed: {error.strerror}",
                    topic_partition=self.name,
                    path=error.filename or listing.place.directory,
                ) from error
        return held

    def _lineage(self, local: PartitionLog | None, held: Sequence[HeldSegment]) -> Lineage:
        if local is not None:
            epochs = leader_epochs(local.store, local.directory)
            if epochs:
                return without_empty_epochs(epochs)
        topic = topic_id_of(one.segment for one in held)
        of_topic = {one.segment.segment_id: one for one in held if one.segment.partition.topic_id == topic}
        last = newest(one.segment for one in of_topic.values())
        if last is None:
            return []
        source = of_topic[last.segment_id]
        try:
            return without_empty_epochs(leader_epochs_of(source, self._options.keys))
        except KafkalogError as error:
            raise error.at(topic_partition=self.name, path=source.log_path) from None
        except OSError as error:
            raise NotALogDirectory(
                f"the segment's leader epochs cannot be read: {error.strerror}",
                topic_partition=self.name,
                path=source.log_path,
            ) from error

    def _tell_of(self, walk: LogWalk) -> None:
        for hole in walk.holes:
            _log.warning("%s: offsets [%d, %d) are held by no segment", self.name, hole.start, hole.until)

    def _take_parts(self, parts: Iterable[Part]) -> None:
        self._parts = list(parts)
        self.segments = [part.files for part in self._parts]
        self._bases = [part.files.base_offset for part in self._parts]

    # ---- where it starts and ends

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers may see."""
        if self._known is not None:
            return self._known.log_start
        first = self._parts[0].start if self._parts else 0
        return max(first, self._log_start_checkpoint or 0)

    @cached_property
    def log_end(self) -> LogEnd:
        """As of PartitionLog; without a local log, after the last remote segment."""
        if self._known is not None:
            return self._known.log_end
        local = self._live_local
        if local is None:
            end = LogEnd(self._parts[-1].until if self._parts else self.log_start_offset, 0)
        else:
            end = local.log_end
        return end._replace(offset=max(end.offset, self.log_start_offset))

    def snapshots_up_to(self, offset: int) -> list[tuple[int, str]]:
        """As of PartitionLog; those of remote segments tell of the offset after the segment."""
        found = {at: path for at, path in self._remote_snapshots().items() if at <= offset}
        if self._local is not None:
            found.update(self._local.snapshots_up_to(offset))
        return sorted(found.items(), reverse=True)

    def _remote_snapshots(self) -> dict[int, str]:
        return {part.held.segment.until: part.held.log_path for part in self._parts if part.held is not None}

    def read_snapshot(self, path: str) -> list[ProducerEntry]:
        """As of PartitionLog; of a remote segment, `path` is that of its .log."""
        for part in self._parts:
            if part.held is not None and part.held.log_path == path:
                return producers_after(part.held, self._options.keys)
        return super().read_snapshot(path)

    # ---- its parts

    def segment_index(self, offset: int) -> int:
        """As of PartitionLog; for an offset that nothing holds, the part after the hole."""
        index = max(bisect_right(self._bases, offset) - 1, 0)
        last = len(self._parts) - 1
        return index + 1 if index < last and offset >= self._parts[index].until else index

    def next_base_offset(self, index: int) -> int | None:
        """Where the part after `index` begins; of the last one where it ends, None for the end of a live log."""
        if index + 1 < len(self._bases):
            return self._bases[index + 1]
        part = self._parts[index]
        return part.next_base if part.held is None else part.until

    def largest_timestamp(self, index: int) -> int | None:
        """As of PartitionLog: what was written down of a remote segment."""
        held = self._parts[index].held
        return None if held is None or held.segment.max_timestamp < 0 else held.segment.max_timestamp

    def open_segment(self, index: int) -> SegmentFile:
        """As of PartitionLog. Raises KeyNotGiven, CorruptManifest, CorruptLog too, for remote ones."""
        part = self._parts[index]
        try:
            if part.held is not None:
                return open_remote(part.held, self._options.keys, self.name, pass_over_damage=self.pass_over_damage)
            return SegmentFile.open(
                self.store,
                self.directory,
                part.files,
                part.next_base,
                self.name,
                facts=part.facts,
                pass_over_damage=self.pass_over_damage,
            )
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._cannot_open(self._path_of(part), error) from error

    def size_of(self, index: int) -> int:
        """As of PartitionLog; of a remote segment as it was before the plugin."""
        part = self._parts[index]
        if part.held is None:
            known = part.facts.get(part.files.log)
            return os.stat(self._path_of(part)).st_size if known is None else known.size
        size = part.held.log_size
        return os.stat(part.held.log_path).st_size if size is None else size

    def open_segment_at(self, offset: int) -> SegmentFile | None:
        """As of PartitionLog; past what a task was given to know, everything is listed."""
        if self._known is not None and not (self._parts and self._parts[0].start <= offset < self._parts[-1].until):
            self.refresh()
        return super().open_segment_at(offset)

    def has_changed(self, file: SegmentFile) -> bool:
        """As of PartitionLog."""
        changed = file.has_changed()
        self.refresh()
        found = (file.path, file.next_base_offset)
        return changed or all(found != (self._path_of(part), part.end_of_file) for part in self._parts)

    def segment_path(self, index: int) -> str:
        """As of PartitionLog."""
        return self._path_of(self._parts[index])

    def _path_of(self, part: Part) -> str:
        return part.held.log_path if part.held is not None else os.path.join(self.directory, part.files.log)

    # ---- for tasks and transactions

    def known_for(self, start: int, end: int) -> KnownLog:
        """What a task needs to read [start, end) without a listing."""
        parts = [part for part in self._parts if part.start < end and part.until > start]
        return KnownLog(self.log_start_offset, self.log_end, tuple(parts))

    def indexed_runs(self, start: int, end: int) -> list[IndexedRun]:
        """As of PartitionLog: remote parts have transaction indexes that are complete."""
        return runs_of(self._parts, start, end, self._options.keys, self.name)


def _log_end_for(local: PartitionLog | None, remote: Sequence[RemoteSegment]) -> int | None:
    """The live log's end, which remote segments must not reach: looked for only where one may."""
    if local is None or max((segment.until for segment in remote), default=0) <= local.segments[-1].base_offset:
        return None
    return local.log_end_offset
