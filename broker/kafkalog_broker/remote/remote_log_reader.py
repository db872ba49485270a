"""Reads of remote segments for Fetch and ListOffsets (RemoteLogReader, RemoteLogManager.read, findOffsetByTimestamp).
They block, in worker threads; what is known of a log here are lists that are replaced as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataCache
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import SCAN_READ, TimedSegment, segments_from
from kafkalog_broker.storage.partition.offset_lookup import TimestampAndOffset, aborted_in, offset_in_segment
from kafkalog_spark.errors import RemoteResourceNotFound
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.offset_index import OffsetIndex, parse_offset_index
from kafkalog_spark.format.time_index import TimeIndex, parse_time_index
from kafkalog_spark.format.transaction_index import AbortedTransaction, collect_aborted, parse_transaction_index
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.tiered.remote_names import RemoteFile, RemoteSegment

MOST_BYTES = 2 << 20
"""Bytes of records of one answer, unless a single batch has more. Consumers ask for 1 MB of a partition by default."""
_REMEMBERED = 256  # places where a consumer's next fetch begins: as many go on without a search in an index


_AHEAD = 64 << 10  # bytes read at once while batches are looked for: as a rule more than between two index entries


class RemoteSegmentFile(TimedSegment):
    """Blocks: for worker threads, one at a time. Raises RemoteStorageError and what RemoteStorage.fetch raises."""

    def __init__(self, storage: RemoteStorage, segment: RemoteSegment) -> None:
        self.segment = segment
        self.base_offset = segment.start_offset
        self.log_path = f"{segment.name}.log"
        self.found_by_time: dict[tuple[int, int, int], Any] = {}
        self.fetched_bytes = 0
        self._storage = storage
        self._index: OffsetIndex | None = None
        self._held_at, self._held = 0, b""

    @property
    def size(self) -> int:
        return self.segment.size

    def handle(self) -> RemoteSegmentFile:
        return self

    def read(self, position: int, size: int) -> bytes:
        """Bytes, fewer only at the end; what is read within them next needs no further request."""
        at = position - self._held_at
        if not 0 <= at <= at + min(size, self.size - position) <= len(self._held):
            self._held = self._storage.fetch(self.segment, position, position + max(size, _AHEAD))
            self._held_at, at = position, 0
            self.fetched_bytes += len(self._held)
        return self._held[at : at + size]

    def time_index(self) -> TimeIndex:
        return parse_time_index(self._storage.fetch_index(self.segment, RemoteFile.TIME_INDEX), self.base_offset)

    def aborted(self) -> Sequence[AbortedTransaction]:
        """The entries of the transaction index."""
        if self.segment.transaction_index_empty:
            return ()
        data = self._storage.fetch_index(self.segment, RemoteFile.TRANSACTION_INDEX)
        return parse_transaction_index(data, self.base_offset)

    def _index_floor(self, target: int, field: int) -> int:
        if self._index is None:
            data = self._storage.fetch_index(self.segment, RemoteFile.OFFSET_INDEX)
            self._index = parse_offset_index(data, self.base_offset)
        entry = self._index.floor_position(target) if field else self._index.floor(self.base_offset + target)
        return entry.position if entry.position < self.size else 0


class RemoteRead(NamedTuple):
    """Whole batches from a remote segment. aborted: None unless asked for. fetched_bytes: asked of remote storage."""

    records: bytes
    next_offset: int
    aborted: list[AbortedTransaction] | None
    fetched_bytes: int


class RemoteLogReader:
    def __init__(self, storage: RemoteStorage) -> None:
        self._storage = storage
        self._places: dict[tuple[UUID, int], int] = {}

    def read(
        self, log: Log, remote: RemoteLogMetadataCache, offset: int, max_bytes: int, *, at_least_one: bool,
        committed: bool,
    ) -> RemoteRead:  # fmt: skip
        """Batches from the one that holds `offset` on, of one segment, at most `max_bytes` of them; nothing where
        `offset` is not remote any more, but local. at_least_one: the first one comes even when it is larger. Raises
        BrokerError offset_out_of_range, RemoteStorageError, CorruptLog."""
        lineage = log.epochs.entries
        fetched = 0
        for segment in remote.walk(lineage, offset):  # more than one: of a segment only empty offsets may be left
            file = RemoteSegmentFile(self._storage, segment)
            try:
                found = self._batches(file, offset, min(max_bytes, MOST_BYTES), at_least_one=at_least_one)
            except RemoteResourceNotFound:
                if offset < log.log_start_offset:  # retention took it since it was asked for
                    break
                raise
            fetched += file.fetched_bytes
            if found is not None:
                records, next_offset = found
                aborted = None
                if committed:
                    aborted = self._aborted(log, remote, lineage, offset, next_offset) if records else []
                return RemoteRead(records, next_offset, aborted, fetched)
            offset = segment.until
        if log.local_log_start_offset <= offset <= log.log_end_offset:
            return RemoteRead(b"", offset, [] if committed else None, fetched)
        raise log.error(
            ErrorCode.offset_out_of_range,
            f"offset {offset} of leader epoch {log.epochs.epoch_of(offset)} does not exist in remote storage; the log "
            f"goes from {log.log_start_offset} to {log.log_end_offset}",
            offset,
        )

    def _batches(
        self, file: RemoteSegmentFile, offset: int, max_bytes: int, *, at_least_one: bool
    ) -> tuple[bytes, int] | None:
        """The batches and the offset after them; None when the segment holds nothing at or past `offset`."""
        segment = file.segment
        position = self._places.get((segment.segment_id, offset))
        if position is None:
            bounds = file.locate(offset)
            if bounds is None:
                return None
            position = bounds.position
        if position >= file.size:
            return None
        if file.size - position <= max_bytes:
            end, next_offset = file.size, segment.until
        else:
            file.read(position, max_bytes + SCAN_READ)  # for all that follows
            end, next_offset = file.boundary(position, position + max_bytes)
            if end == position:
                if not at_least_one:
                    return b"", offset
                first = next(file.bounds_from(position))
                end, next_offset = first.end, first.last_offset + 1
        records = file.read(position, end - position)
        if len(self._places) >= _REMEMBERED:
            with suppress(StopIteration, RuntimeError):  # other threads change them, too
                self._places.pop(next(iter(self._places)), None)  # the oldest
        self._places[segment.segment_id, next_offset] = end
        return records, next_offset

    def _aborted(
        self, log: Log, remote: RemoteLogMetadataCache, lineage: Sequence[EpochEntry], offset: int, up_to: int
    ) -> list[AbortedTransaction]:
        """Of the transactions with records in [offset, up_to) those that were aborted, by remote transaction indexes
        and, past the last remote segment, by local ones (collectAbortedTransactionInRemoteSegments)."""
        found: list[AbortedTransaction] = []
        until = offset
        for segment in remote.walk(lineage, offset):
            if segment.start_offset >= log.local_log_start_offset:
                break
            search = collect_aborted(RemoteSegmentFile(self._storage, segment).aborted(), offset, up_to)
            found += search.transactions
            if search.complete:
                return found
            until = segment.until
        local = segments_from(log.segments, until)
        with log.failing(nothing_happened=True):
            found += aborted_in(local, offset, up_to)
        return list(dict.fromkeys(found))

    def offset_for_timestamp(
        self, log: Log, remote: RemoteLogMetadataCache, timestamp: int
    ) -> TimestampAndOffset | None:
        """As Log.offset_for_timestamp, of remote records too. Raises BrokerError, RemoteStorageError, CorruptLog."""
        lineage, start = log.epochs.entries, log.log_start_offset
        for segment in remote.walk(lineage, start):
            if segment.start_offset >= log.local_log_start_offset:
                break
            if segment.max_timestamp >= timestamp:
                found = offset_in_segment(RemoteSegmentFile(self._storage, segment), timestamp, start)
                if found is not None:
                    return found
        return log.offset_for_timestamp(timestamp)
