"""Log of a partition with remote segments, merged with the local segments by leader epochs.

Readers use it like any other PartitionLog. Each of its segments is a part: a local segment, or those offsets of a
remote segment that no local segment contains. All segments of a lineage have the same records at the same
offsets, so a reader may continue in an opened remote file after the end of its part.
"""

from __future__ import annotations

import logging
import os
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby

from kafkalog_spark.errors import CorruptLog, NotALogDirectory, UnsupportedFormat
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE
from kafkalog_spark.format.producer_snapshot import ProducerEntry
from kafkalog_spark.log.read.abort_source import AbortSource, IndexedAborts
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import (
    MAX_LISTINGS,
    NO_HINTS,
    OpenHints,
    PartitionLocation,
    PartitionLog,
)
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.remote.indexed_aborts import find_indexed_aborts
from kafkalog_spark.log.remote.log_part import LogPart, PlannedLog
from kafkalog_spark.log.remote.part_finder import PartFinder
from kafkalog_spark.log.remote.remote_indexes import read_producers
from kafkalog_spark.log.remote.remote_metadata_reader import RemoteMetadata
from kafkalog_spark.log.remote.remote_segment_file import open_remote
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.tiered.tier_options import DEFAULT_TIER_OPTIONS, TierOptions
from kafkalog_spark.store.interface import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TieredLocation(PartitionLocation):
    """Location of a partition with remote segments. A pickle contains the private keys in `options`.

    Attributes:
        is_local: True if `directory` and `store` are those of a local partition directory, False if they are those of
            the first remote directory.
        remote: One remote directory for each topic ID.
        options: Options of the remote storage.
        metadata: Reader of `__remote_log_metadata`, or None if the topic is not available.
        planned: Parts of the offset range of a task, which then lists no directory; None to list the directories.
        remembered: Remote segments whose metadata is already known and is not fetched again.
    """

    is_local: bool = False
    remote: tuple[RemoteDir, ...] = ()
    options: TierOptions = DEFAULT_TIER_OPTIONS
    metadata: RemoteMetadata | None = None
    planned: PlannedLog | None = None
    remembered: tuple[StoredSegment, ...] = ()

    @property
    def in_log_directory(self) -> PartitionLocation:
        """Location of the local log only; `self` if there is no local log. Replicas are compared by it."""
        if not self.is_local:
            return self
        return PartitionLocation(self.topic, self.partition, self.directory, self.store)

    def open_without_checkpoints(self, hints: OpenHints = NO_HINTS) -> PartitionLog:
        return TieredLog(self, hints)

    @property
    def stores(self) -> tuple[Store, ...]:
        return (self.store, *(remote_dir.store for remote_dir in self.remote))

    @property
    def has_checkpoints(self) -> bool:
        return self.is_local and self.planned is None

    def exists(self) -> bool:
        return super().exists() or any(remote_dir.store.exists(remote_dir.directory) for remote_dir in self.remote)

    def topic_id(self) -> uuid.UUID | None:
        """Return the topic ID of the local log; without one, that of the remote directories, or None if they differ."""
        if self.is_local:
            return super().topic_id()
        ids = {remote_dir.partition.topic_id for remote_dir in self.remote}
        return ids.pop() if len(ids) == 1 else None


@dataclass(frozen=True)
class LocationWithoutTopicId(PartitionLocation):
    """Location of a partition whose topic ID is missing or unreadable, so that its remote segments cannot be found.

    The log can be opened only if all of its segments are on disk.
    """

    @property
    def in_log_directory(self) -> PartitionLocation:
        """Location of the segments on disk."""
        return PartitionLocation(self.topic, self.partition, self.directory, self.store)

    def open_without_checkpoints(self, hints: OpenHints = NO_HINTS) -> PartitionLog:
        log = super().open_without_checkpoints(hints)
        if log.segments and log.segments[0].base_offset > (hints.log_start or 0):
            raise NotALogDirectory(
                f"the segments before offset {log.segments[0].base_offset} are in remote storage and cannot be found, "
                "since the topic ID is missing or cannot be read",
                topic_partition=log.name,
                path=os.path.join(self.directory, PARTITION_METADATA_FILE),
                hint="restore that file; layout=broker reads what is on disk alone",
            )
        return log


class TieredLog(PartitionLog):
    """Log of a partition in a local directory and in remote directories.

    The metadata of a remote segment is fetched when the segment is first needed (`_remote_segment`).

    Attributes:
        finder: Finder of the parts, with the result of the last listing.

    Raises:
        NotALogDirectory: If the log cannot be opened.
        KafkalogError: If a manifest cannot be read.
    """

    def __init__(self, location: TieredLocation, hints: OpenHints) -> None:
        self._location = location
        self._keys = location.options.keys
        self._planned = location.planned
        self._local: PartitionLog | None = None
        self._parts: list[LogPart] = []
        self.finder = PartFinder(
            f"{location.topic}-{location.partition}",
            location.remote,
            location.options,
            location.metadata,
            pass_over_damage=hints.pass_over_damage,
            remembered=location.remembered,
        )
        super().__init__(location, hints)

    def location_for(self, start: int, end: int | None) -> PartitionLocation:
        if end is not None:
            return replace(self._location, planned=self.planned_for(start, end))
        remembered = tuple(part.stored for _, part in self.parts_of(start, MAX_INT64) if part.stored is not None)
        return replace(self._location, remembered=remembered)

    def refresh(self) -> None:
        """List every directory again, and read the new events of `__remote_log_metadata`."""
        self.__dict__.pop("log_end", None)
        if self._planned is not None and self._location.is_local:
            self.hints = self._location.with_checkpoints(self.hints)
        self._planned = None
        if self._local is not None:
            self._local.refresh()
        self._list(refresh_metadata=True)

    def update_checkpoints(self, *, recovery_point: int | None, log_start: int | None) -> None:
        super().update_checkpoints(recovery_point=recovery_point, log_start=log_start)
        if self._local is not None:
            self._local.update_checkpoints(recovery_point=recovery_point, log_start=log_start)

    def _list(self, *, refresh_metadata: bool = False) -> None:
        if self._planned is not None:
            self._set_parts(self._planned.parts)
            self.names = []
            return
        if self._location.is_local and self._local is None:
            self._local = PartitionLog(self._location.in_log_directory, self.hints)
        local = self._live_local
        self._set_parts(self.finder.find(local, self.hints.log_start, refresh_metadata=refresh_metadata))
        self.is_deleted = local is None and not self.finder.exists
        self.names, self.facts = (local.names, local.facts) if local is not None else self.finder.listed

    @property
    def _live_local(self) -> PartitionLog | None:
        """Local log, or None if there is none, it was deleted, or it has no segments."""
        local = self._local
        return local if local is not None and not local.is_deleted and local.segments else None

    def _set_parts(self, parts: Iterable[LogPart]) -> None:
        self._parts = list(parts)
        self.segments = [part.files for part in self._parts]
        self._bases = [part.files.base_offset for part in self._parts]

    @property
    def log_start_offset(self) -> int:
        """First visible offset: that of the first part, or the checkpointed log start offset if it is higher."""
        if self._planned is not None:
            return self._planned.log_start
        first = self._parts[0].start if self._parts else 0
        return max(first, self.hints.log_start or 0)

    @cached_property
    def log_end(self) -> LogEnd:
        """End of the local log; without one, the end of the last remote segment."""
        if self._planned is not None:
            return self._planned.log_end
        local = self._live_local
        if local is None:
            end = LogEnd(self._parts[-1].until if self._parts else self.log_start_offset, 0)
        else:
            end = local.log_end
        return end._replace(offset=max(end.offset, self.log_start_offset))

    def snapshots_up_to(self, offset: int) -> list[tuple[int, str]]:
        """Return (offset, path) of the producer snapshots at or below `offset`, the latest first.

        The snapshot of a remote segment has the offset after the segment, and is identified by the path of the .log.
        """
        snapshots = {}
        for part in self._parts:
            until = part.end_of_file
            if part.remote_path is not None and until is not None and until <= offset:
                snapshots[until] = part.remote_path
        if self._local is not None:
            snapshots.update(self._local.snapshots_up_to(offset))
        return sorted(snapshots.items(), reverse=True)

    def read_snapshot(self, path: str) -> list[ProducerEntry]:
        """Return the entries of a producer snapshot.

        Raises:
            FileNotFoundError: If it does not exist, or if the segment does not end at the offset of the snapshot.
            CorruptSnapshot, UnsupportedFormat, OSError: If it cannot be read.
        """
        for index, part in enumerate(self._parts):
            if part.remote_path == path and (stored := self._remote_segment(index)) is not None:
                return read_producers(stored, self._keys)
        return super().read_snapshot(path)

    def _remote_segment(self, index: int) -> StoredSegment | None:
        """Return the remote segment of a part, fetching its metadata if needed; None for a local part.

        Raises the errors of `PartFinder.fetch_checked`.
        """
        part = self._parts[index]
        if not part.is_pending:
            return part.stored
        following = self._parts[index + 1] if index + 1 < len(self._parts) else None
        stored = self.finder.fetch_checked(part, following, self._live_local)
        files = replace(stored.files, base_offset=part.start)
        self._parts[index] = part._replace(stored=stored, listing=None, objects=None, files=files)
        self.segments[index] = files
        return stored

    def prefetch_segments(self, start: int, end: int) -> None:
        """Fetch the metadata of the remote segments of [start, end) with concurrent requests."""
        for _ in range(MAX_LISTINGS):
            pending = {index: part for index, part in self.parts_of(start, end) if part.is_pending}
            try:
                self.finder.fetch_metadata(list(pending.values()))  # cached for `_remote_segment`
                for index in pending:
                    self._remote_segment(index)
                return
            except FileNotFoundError:
                self.refresh()

    def parts_of(self, start: int, end: int) -> list[tuple[int, LogPart]]:
        """Return the parts that overlap offsets [start, end), each with its index."""
        return [(index, part) for index, part in enumerate(self._parts) if part.start < end and part.until > start]

    def segment_index(self, offset: int) -> int:
        """Return the index of the part that contains `offset`; for an offset in a hole, that of the next part."""
        index = max(bisect_right(self._bases, offset) - 1, 0)
        last = len(self._parts) - 1
        return index + 1 if index < last and offset >= self._parts[index].until else index

    def next_base_offset(self, index: int) -> int | None:
        """Return the start of the next part; for the last part its end, or None at the end of a live log."""
        if index + 1 < len(self._bases):
            return self._bases[index + 1]
        part = self._parts[index]
        return part.next_base if part.is_local else part.until

    def largest_timestamp(self, index: int) -> int | None:
        """Return the largest timestamp (ms) in a remote segment; None if it is unknown or the part is local."""
        try:
            stored = self._remote_segment(index)
        except FileNotFoundError:
            return None
        return stored.segment.max_timestamp if stored is not None and stored.segment.max_timestamp >= 0 else None

    def _open_listed(self, index: int) -> SegmentFile:
        """Open the segment of a part. Raises the errors of `open_remote`."""
        stored, part = self._remote_segment(index), self._parts[index]
        if stored is not None:
            return open_remote(stored, self._keys, self.name, pass_over_damage=self.pass_over_damage)
        return self._open(part.files, part.next_base, part.facts)

    def size_of(self, index: int) -> int:
        """Return the size of the decoded .log of a part in bytes."""
        stored, part = self._remote_segment(index), self._parts[index]
        facts = part.facts.get(part.files.log)
        size = None if facts is None else facts.size
        if stored is not None:
            size = stored.log_size
        return os.stat(self.segment_path(index)).st_size if size is None else size

    def open_segment_at(self, offset: int) -> SegmentFile | None:
        """Open the segment whose range contains `offset`, listing the directories if no planned part has it."""
        if self._planned is not None and not (self._parts and self._parts[0].start <= offset < self._parts[-1].until):
            self.refresh()
        return super().open_segment_at(offset)

    def refresh_and_compare(self, file: SegmentFile) -> bool:
        changed = file.has_changed()
        self.refresh()
        now = [(self.segment_path(index), part.end_of_file) for index, part in enumerate(self._parts)]
        return changed or (file.path, file.next_base_offset) not in now

    def segment_path(self, index: int) -> str:
        part = self._parts[index]
        return part.remote_path or os.path.join(self.directory, part.files.log)

    def planned_for(self, start: int, end: int) -> PlannedLog:
        """Return the parts and offsets with which a task reads [start, end) without listing directories."""
        self.prefetch_segments(start, end)
        parts = tuple(part for _, part in self.parts_of(start, end) if not part.is_pending)
        return PlannedLog(self.log_start_offset, self.log_end, parts)

    def abort_sources(self, start: int, end: int) -> list[AbortSource]:
        """Return a source for each run of local parts and for each run of remote parts in [start, end).

        For remote parts, aborted transactions are looked up in transaction indexes.
        """
        self.prefetch_segments(start, end)
        sources: list[AbortSource] = []
        for is_local, group in groupby(range(len(self._parts)), key=lambda index: self._parts[index].is_local):
            indexes = list(group)
            begin, until = max(start, self._parts[indexes[0]].start), min(end, self._parts[indexes[-1]].until)
            if begin < until:
                remote = [index for index in indexes if self._parts[index].until > begin]
                find_aborts = None if is_local else partial(self._aborted_by_index, remote, begin, until)
                sources.append(AbortSource(begin, until, find_aborts))
        return sources

    def _aborted_by_index(self, indexes: Sequence[int], start: int, end: int) -> IndexedAborts | None:
        """Return the aborted transactions of [start, end), or None if the batches must be read.

        Args:
            indexes: Indexes of consecutive remote parts, the first of which contains `start`. They may continue after
                `end`.
            start: First offset.
            end: Offset after the last one.
        """
        segments = (stored for index in indexes if (stored := self._remote_segment(index)) is not None)
        try:
            return find_indexed_aborts(segments, self._keys, start, end)
        except (CorruptLog, UnsupportedFormat, OSError) as error:
            _log.warning("%s: the batches are read, because the transaction index cannot be read: %s", self.name, error)
            return None
