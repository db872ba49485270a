"""Log of a partition with remote segments, which are combined with the local segments by leader epochs.

Readers use it as a PartitionLog. Each of its segments is a part: a whole local segment, or the offsets of a remote
segment that no local segment has. All segments of a lineage have the same records at the same offsets, so an opened
remote file can be read past the end of its part with the same result.
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
from kafkalog_spark.format.transaction_index import AbortedTransaction, collect_aborted
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import (
    LISTINGS,
    NO_HINTS,
    IndexedAborts,
    IndexedRun,
    OpenHints,
    PartitionLocation,
    PartitionLog,
)
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.remote.log_part import LogPart, PlannedLog
from kafkalog_spark.log.remote.part_finder import PartFinder
from kafkalog_spark.log.remote.remote_indexes import read_aborted_transactions, read_producers
from kafkalog_spark.log.remote.remote_metadata_reader import RemoteMetadata
from kafkalog_spark.log.remote.remote_segment_file import open_remote
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.tiered.tier_options import DEFAULT_TIER_OPTIONS, TierOptions
from kafkalog_spark.store.interface import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TieredLocation(PartitionLocation):
    """Location of a partition with remote segments. A pickle contains the keys in `options`.

    Attributes:
        is_local: True if `directory` and `store` are those of a local partition directory, False if they are those of
            the first remote directory.
        remote: One remote directory for each topic ID.
        options: Options of the remote storage.
        metadata: Reader of `__remote_log_metadata`, or None if the topic is not available.
        planned: Parts of the offset range of a task, which then lists nothing.
        remembered: Metadata of remote segments that need not be fetched again after a listing.
    """

    is_local: bool = False
    remote: tuple[RemoteDir, ...] = ()
    options: TierOptions = DEFAULT_TIER_OPTIONS
    metadata: RemoteMetadata | None = None
    planned: PlannedLog | None = None
    remembered: tuple[StoredSegment, ...] = ()

    @property
    def local(self) -> PartitionLocation:
        """Location without the remote segments, by which the copies of a partition are compared."""
        if not self.is_local:
            return self
        return PartitionLocation(self.topic, self.partition, self.directory, self.store)

    def open_without_checkpoints(self, hints: OpenHints = NO_HINTS) -> PartitionLog:
        return TieredLog(self, hints)

    @property
    def stores(self) -> tuple[Store, ...]:
        return (self.store, *(place.store for place in self.remote))

    @property
    def has_checkpoints(self) -> bool:
        return self.is_local and self.planned is None

    def exists(self) -> bool:
        return super().exists() or any(place.store.exists(place.directory) for place in self.remote)

    def topic_id(self) -> uuid.UUID | None:
        """See PartitionLocation. Without a local log: the topic ID that all remote directories share, or None."""
        if self.is_local:
            return super().topic_id()
        ids = {place.partition.topic_id for place in self.remote}
        return ids.pop() if len(ids) == 1 else None


@dataclass(frozen=True)
class LocationWithoutTopicId(PartitionLocation):
    """Location of a partition whose remote segments cannot be found, because its topic ID is missing or unreadable.

    The log can be opened only if all of it is on disk.
    """

    @property
    def local(self) -> PartitionLocation:
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
        remembered = tuple(part.held for _, part in self.parts_of(start, MAX_INT64) if part.held is not None)
        return replace(self._location, remembered=remembered)

    def refresh(self) -> None:
        """See PartitionLog. Lists every directory again and reads the new events of `__remote_log_metadata`."""
        self.__dict__.pop("log_end", None)
        if self._planned is not None and self._location.is_local:
            self.hints = self._location.with_checkpoints(self.hints)
        self._planned = None
        if self._local is not None:
            self._local.refresh()
        self._list(again=True)

    def update_checkpoints(self, *, recovery_point: int | None, log_start: int | None) -> None:
        super().update_checkpoints(recovery_point=recovery_point, log_start=log_start)
        if self._local is not None:
            self._local.update_checkpoints(recovery_point=recovery_point, log_start=log_start)

    def _list(self, *, again: bool = False) -> None:
        if self._planned is not None:
            self._take_parts(self._planned.parts)
            self.names = []
            return
        if self._location.is_local and self._local is None:
            self._local = PartitionLog(self._location.local, self.hints)
        local = self._live_local
        self._take_parts(self.finder.find(local, self.hints.log_start, again=again))
        self.is_deleted = local is None and not self.finder.exists
        self.names, self.facts = (local.names, local.facts) if local is not None else self.finder.listed

    @property
    def _live_local(self) -> PartitionLog | None:
        local = self._local
        return local if local is not None and not local.is_deleted and local.segments else None

    def _take_parts(self, parts: Iterable[LogPart]) -> None:
        self._parts = list(parts)
        self.segments = [part.files for part in self._parts]
        self._bases = [part.files.base_offset for part in self._parts]

    @property
    def log_start_offset(self) -> int:
        """First offset that readers may read."""
        if self._planned is not None:
            return self._planned.log_start
        first = self._parts[0].start if self._parts else 0
        return max(first, self.hints.log_start or 0)

    @cached_property
    def log_end(self) -> LogEnd:
        """See PartitionLog. Without a local log: the end of the last remote segment."""
        if self._planned is not None:
            return self._planned.log_end
        local = self._live_local
        if local is None:
            end = LogEnd(self._parts[-1].until if self._parts else self.log_start_offset, 0)
        else:
            end = local.log_end
        return end._replace(offset=max(end.offset, self.log_start_offset))

    def snapshots_up_to(self, offset: int) -> list[tuple[int, str]]:
        """See PartitionLog. Those of remote segments, by the path of the .log, tell of the offset after the segment."""
        found = {}
        for part in self._parts:
            until = part.end_of_file
            if part.remote_path is not None and until is not None and until <= offset:
                found[until] = part.remote_path
        if self._local is not None:
            found.update(self._local.snapshots_up_to(offset))
        return sorted(found.items(), reverse=True)

    def read_snapshot(self, path: str) -> list[ProducerEntry]:
        """See PartitionLog. Raises FileNotFoundError too where names did not tell of which offset it is."""
        for index, part in enumerate(self._parts):
            if part.remote_path == path and (held := self._held(index)) is not None:
                return read_producers(held, self._keys)
        return super().read_snapshot(path)

    def _held(self, index: int) -> StoredSegment | None:
        """Facts of a part's remote segment, fetched if needed; None for a local one. Raises as PartFinder.hold."""
        part = self._parts[index]
        if not part.is_pending:
            return part.held
        following = self._parts[index + 1] if index + 1 < len(self._parts) else None
        held = self.finder.hold(part, following, self._live_local)
        files = replace(held.files, base_offset=part.start)
        self._parts[index] = part._replace(held=held, listing=None, objects=None, files=files)
        self.segments[index] = files
        return held

    def prefetch_segments(self, start: int, end: int) -> None:
        """See PartitionLog: the remote segments of [start, end) are asked about, several at once."""
        for _ in range(LISTINGS):
            wanted = {index: part for index, part in self.parts_of(start, end) if part.is_pending}
            try:
                self.finder.fetch_metadata(list(wanted.values()))  # several at once; `_held` finds it done
                for index in wanted:
                    self._held(index)
                return
            except FileNotFoundError:
                self.refresh()

    def parts_of(self, start: int, end: int) -> list[tuple[int, LogPart]]:
        """Return the parts that overlap offsets [start, end), each with its index."""
        return [(index, part) for index, part in enumerate(self._parts) if part.start < end and part.until > start]

    def segment_index(self, offset: int) -> int:
        """See PartitionLog; for an offset that nothing holds, the part after the hole."""
        index = max(bisect_right(self._bases, offset) - 1, 0)
        last = len(self._parts) - 1
        return index + 1 if index < last and offset >= self._parts[index].until else index

    def next_base_offset(self, index: int) -> int | None:
        """Where the part after `index` begins; of the last one where it ends, None for the end of a live log."""
        if index + 1 < len(self._bases):
            return self._bases[index + 1]
        part = self._parts[index]
        return part.next_base if part.is_local else part.until

    def largest_timestamp(self, index: int) -> int | None:
        """See PartitionLog: what was written down of a remote segment."""
        try:
            held = self._held(index)
        except FileNotFoundError:
            return None
        return held.segment.max_timestamp if held is not None and held.segment.max_timestamp >= 0 else None

    def _open_listed(self, index: int) -> SegmentFile:
        """Raises as `open_remote`."""
        held, part = self._held(index), self._parts[index]
        if held is not None:
            return open_remote(held, self._keys, self.name, pass_over_damage=self.pass_over_damage)
        return self._open(part.files, part.next_base, part.facts)

    def size_of(self, index: int) -> int:
        """See PartitionLog; of a remote segment as it was before the plugin."""
        held, part = self._held(index), self._parts[index]
        facts = part.facts.get(part.files.log)
        size = None if facts is None else facts.size
        if held is not None:
            size = held.log_size
        return os.stat(self.segment_path(index)).st_size if size is None else size

    def open_segment_at(self, offset: int) -> SegmentFile | None:
        """See PartitionLog; past what a task was given to know, everything is listed."""
        if self._planned is not None and not (self._parts and self._parts[0].start <= offset < self._parts[-1].until):
            self.refresh()
        return super().open_segment_at(offset)

    def has_changed(self, file: SegmentFile) -> bool:
        changed = file.has_changed()
        self.refresh()
        now = [(self.segment_path(index), part.end_of_file) for index, part in enumerate(self._parts)]
        return changed or (file.path, file.next_base_offset) not in now

    def segment_path(self, index: int) -> str:
        part = self._parts[index]
        return part.remote_path or os.path.join(self.directory, part.files.log)

    def planned_for(self, start: int, end: int) -> PlannedLog:
        """Return the parts and offsets with which a task reads [start, end) without a listing."""
        self.prefetch_segments(start, end)
        parts = tuple(part for _, part in self.parts_of(start, end) if not part.is_pending)
        return PlannedLog(self.log_start_offset, self.log_end, parts)

    def indexed_runs(self, start: int, end: int) -> list[IndexedRun]:
        """See PartitionLog. Runs of remote parts are looked up in their transaction indexes, which are complete."""
        self.prefetch_segments(start, end)
        runs: list[IndexedRun] = []
        for is_local, group in groupby(range(len(self._parts)), key=lambda index: self._parts[index].is_local):
            indexes = list(group)
            begin, until = max(start, self._parts[indexes[0]].start), min(end, self._parts[indexes[-1]].until)
            if begin < until:
                remote = [index for index in indexes if self._parts[index].until > begin]
                find = None if is_local else partial(self._aborted_by_index, remote, begin, until)
                runs.append(IndexedRun(begin, until, find))
        return runs

    # Kafka copies a segment once all of its transactions have ended, and with it the index of those whose abort marker
    # lies in it (RemoteLogManager.collectAbortedTransactions). So the batches need not be read twice. A marker may lie
    # in a later segment, and that one may be local: the producer snapshots that are copied with the segments tell which
    # transactions had not ended, and for these alone is read on.

    def _aborted_by_index(self, indexes: Sequence[int], start: int, end: int) -> IndexedAborts | None:
        """Aborted transactions of [start, end) by transaction indexes; None where these cannot be read, or do
        not tell. indexes: of remote parts one after the other, from that of `start` on, also past `end`."""
        found: dict[AbortedTransaction, None] = {}  # segments that overlap tell of the same transactions
        waiting: dict[int, int] | None = None
        reached = end
        for index in indexes:
            try:
                segment = self._held(index)
                assert segment is not None
                indexed = read_aborted_transactions(segment, self._keys)
            except (CorruptLog, UnsupportedFormat, OSError) as error:
                _log.warning("%s: the batches are read, as the transaction index cannot be: %s", self.name, error)
                return None
            if indexed is None:
                return None
            search = collect_aborted(indexed, start, end)
            found.update(dict.fromkeys(search.transactions))
            reached = segment.segment.until
            if search.complete:
                return IndexedAborts(list(found), {}, reached)
            if reached >= end:
                try:
                    waiting = {
                        entry.producer_id: entry.transaction_first_offset
                        for entry in read_producers(segment, self._keys)
                        if entry.has_open_transaction and entry.transaction_first_offset < end
                    }
                except (CorruptLog, UnsupportedFormat, OSError):
                    waiting = None
                if waiting == {}:
                    break
        return None if waiting is None else IndexedAborts(list(found), waiting, reached)
