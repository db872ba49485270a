"""Reads of remote segments for Fetch and ListOffsets (Kafka: `RemoteLogManager.read`, `findOffsetByTimestamp`).

Reads block, and run on worker threads. Of a log and its metadata they use only lists that are replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.remote.remote_log_metadata_cache import RemoteLogMetadataCache
from kafkalog_broker.remote.transaction_markers import TransactionMarkers
from kafkalog_broker.storage.partition.aborted_transactions import aborted_in
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import segments_from
from kafkalog_broker.storage.partition.segment_lookup import SCAN_READ, BatchEnd, SegmentEnd, SegmentLookup
from kafkalog_broker.storage.partition.timestamp_lookup import TimestampAndOffset, offset_in_segment
from kafkalog_spark.errors import CorruptIndex, CorruptLog, RemoteResourceNotFound
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.offset_index import OffsetIndex, parse_offset_index
from kafkalog_spark.format.time_index import TimeIndex, parse_time_index
from kafkalog_spark.format.transaction_index import AbortedTransaction, collect_aborted, parse_transaction_index
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment

MAX_BYTES = 2 << 20
"""Largest number of bytes per read, unless a single batch has more. Consumers request 1 MB per partition by default."""
_MAX_POSITIONS = 256  # cached positions: this many consumers resume without an index look-up
_READ_AHEAD = 64 << 10  # bytes per request in the search for a batch: usually more than between two index entries


class RemoteSegmentFile(SegmentLookup):
    """Remote segment with its indexes. Methods block; use it on one thread at a time.

    All methods raise RemoteStorageError and the other errors of `RemoteStorage.fetch`.

    Attributes:
        fetched_bytes: Number of bytes of the .log fetched so far.
    """

    def __init__(self, storage: RemoteStorage, segment: RemoteSegment) -> None:
        self.segment = segment
        self.base_offset = segment.start_offset
        self.end = SegmentEnd(segment.size, segment.until)
        self.log_path = f"{segment.name}.log"
        self.time_lookup_cache: dict[tuple[int, int, int], Any] = {}
        self.fetched_bytes = 0
        self._storage = storage
        self._index: OffsetIndex | None = None
        self._buffer_at, self._buffer = 0, b""

    def handle(self) -> RemoteSegmentFile:
        return self

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes [position, position + size), fewer only at the end. Bytes already fetched need no request.

        Raises:
            CorruptLog: If remote storage has fewer bytes than the segment's metadata says.
        """
        at = self._fetch_into_buffer(position, size)
        return self._buffer[at : at + size]

    def _fetch_into_buffer(self, position: int, size: int) -> int:
        """Make sure that the buffer contains the bytes that `read` returns, and return their position in it.

        Raises CorruptLog.
        """
        at = position - self._buffer_at
        expected = min(size, self.size - position)
        if 0 <= at <= at + expected <= len(self._buffer):
            return at
        self._buffer = self._storage.fetch(self.segment, position, position + max(size, _READ_AHEAD))
        self._buffer_at = position
        self.fetched_bytes += len(self._buffer)
        if len(self._buffer) < expected:
            raise CorruptLog(
                f"remote storage has {len(self._buffer)} bytes of the segment from byte {position} on, expected "
                f"{self.size - position}: the segment has {self.size} bytes by __remote_log_metadata",
                path=self.log_path,
                position=position,
            )
        return 0

    def time_index(self) -> TimeIndex:
        return parse_time_index(self._storage.fetch_index(self.segment, RemoteFile.TIME_INDEX), self.base_offset)

    def aborted(self) -> Sequence[AbortedTransaction]:
        """Return the entries of the transaction index; some may be lost, see `has_whole_transaction_index`."""
        if self.segment.transaction_index_empty:
            return ()
        data = self._storage.fetch_index(self.segment, RemoteFile.TRANSACTION_INDEX)
        try:
            return parse_transaction_index(data, self.base_offset)
        except CorruptIndex as error:
            raise error.at(path=f"{self.segment.name}.txnindex") from None

    @property
    def has_whole_transaction_index(self) -> bool:
        """True if `aborted` is known to return all entries."""
        return self.segment.transaction_index_empty or self._storage.knows_transaction_index(self.segment)

    def last_batch_end(self, start: int, limit: int) -> BatchEnd | None:
        """As in SegmentLookup, but check each batch and the header after them, which verifies the last batch's offsets.

        The bytes are fetched, so reading them needs no further request.
        """
        at = self._fetch_into_buffer(start, limit - start + SCAN_READ)
        return self.check_batches(self._buffer, at, start, limit)

    def _index_floor(self, target: int, column: int) -> tuple[int, int]:
        if self._index is None:
            data = self._storage.fetch_index(self.segment, RemoteFile.OFFSET_INDEX)
            self._index = parse_offset_index(data, self.base_offset)
        entry = self._index.floor_position(target) if column else self._index.floor(self.base_offset + target)
        return entry.offset, entry.position if entry.position < self.size else 0


class RemoteRead(NamedTuple):
    """Whole batches from a remote segment.

    Attributes:
        aborted: None unless the read was for a read_committed consumer.
        fetched_bytes: Number of bytes fetched from remote storage.
    """

    records: bytes
    next_offset: int
    aborted: list[AbortedTransaction] | None
    fetched_bytes: int


class _Batches(NamedTuple):
    """Batches of a segment, the position where they begin, and the offset after them."""

    records: bytes
    position: int
    next_offset: int


class RemoteLogReader:
    """Reads records of remote segments. Thread-safe."""

    def __init__(self, storage: RemoteStorage) -> None:
        self._storage = storage
        self._positions: dict[tuple[UUID, int], int] = {}
        self._markers = TransactionMarkers()

    def read(
        self, log: Log, remote: RemoteLogMetadataCache, offset: int, max_bytes: int, *, at_least_one: bool,
        committed: bool,
    ) -> RemoteRead:  # fmt: skip
        """Read whole batches of one segment, from the one that contains `offset`.

        Args:
            max_bytes: Largest total size of the batches.
            at_least_one: Return the first batch even if it is larger than `max_bytes`.
            committed: Look up aborted transactions.

        Returns:
            No batches if `offset` is no longer remote, but local.

        Raises:
            BrokerError: offset_out_of_range.
            RemoteStorageError: If remote storage does not respond.
            CorruptLog: If the segment is damaged.
        """
        lineage = log.epochs.entries
        fetched = 0
        for segment in remote.walk(lineage, offset):  # a segment may have no batch from `offset` on: try the next one
            file = RemoteSegmentFile(self._storage, segment)
            try:
                found = self._batches(file, offset, min(max_bytes, MAX_BYTES), at_least_one=at_least_one)
            except RemoteResourceNotFound:
                if offset < log.log_start_offset:  # retention deleted the segment meanwhile
                    break
                raise
            if found is not None:
                aborted = None
                if committed:
                    aborted = self._aborted(log, remote, lineage, offset, file, found) if found.records else []
                return RemoteRead(found.records, found.next_offset, aborted, fetched + file.fetched_bytes)
            fetched += file.fetched_bytes
            offset = segment.until
        if log.local_log_start_offset <= offset <= log.log_end_offset:
            return RemoteRead(b"", offset, [] if committed else None, fetched)
        raise log.error(
            ErrorCode.offset_out_of_range,
            f"offset {offset} of leader epoch {log.epochs.epoch_for_offset(offset)} does not exist in remote storage; "
            f"the log has offsets {log.log_start_offset} to {log.log_end_offset}",
            offset,
        )

    def _batches(self, file: RemoteSegmentFile, offset: int, max_bytes: int, *, at_least_one: bool) -> _Batches | None:
        """Read batches of one segment; None if it has no batch at or after `offset`."""
        segment = file.segment
        position = self._positions.get((segment.segment_id, offset))
        if position is None:
            bounds = file.locate(offset)
            if bounds is None:
                return None
            position = bounds.position
        if position >= file.size:
            return None
        whole = file.last_batch_end(position, position + max_bytes)
        if whole is None:
            if not at_least_one:
                return _Batches(b"", position, offset)
            first = next(file.bounds_from(position))
            whole = file.last_batch_end(position, first.end)
            assert whole is not None
        end, next_offset = whole
        if end == file.size:
            next_offset = segment.until
        records = file.read(position, end - position)
        if len(self._positions) >= _MAX_POSITIONS:
            with suppress(StopIteration, RuntimeError):  # another thread may change the dict
                self._positions.pop(next(iter(self._positions)), None)  # the oldest
        self._positions[segment.segment_id, next_offset] = end
        return _Batches(records, position, next_offset)

    def _aborted(
        self, log: Log, remote: RemoteLogMetadataCache, lineage: Sequence[EpochEntry], offset: int,
        file: RemoteSegmentFile, batches: _Batches,
    ) -> list[AbortedTransaction]:  # fmt: skip
        """Return the aborted transactions with records in these batches from `offset` on.

        They come from remote transaction indexes and, after the last remote segment, from local ones (Kafka:
        `collectAbortedTransactionInRemoteSegments`). Where an index may be incomplete, they also come from the markers.
        """
        found: list[AbortedTransaction] = []
        until, up_to = offset, batches.next_offset
        is_complete = may_be_incomplete = False
        for segment in self._before_local(log, remote, lineage, offset):
            indexed = RemoteSegmentFile(self._storage, segment)
            search = collect_aborted(indexed.aborted(), offset, up_to)
            found += search.transactions
            is_complete = search.is_complete
            if is_complete:
                break
            may_be_incomplete = may_be_incomplete or not indexed.has_whole_transaction_index
            until = segment.until
        if not is_complete:
            with log.offline_on_error(unchanged=True):
                found += aborted_in(segments_from(log.segments, until), offset, up_to)
        if may_be_incomplete:
            following: list[RemoteSegmentFile] = []

            def following_files() -> Iterator[RemoteSegmentFile]:
                for segment in self._before_local(log, remote, lineage, file.segment.until):
                    following.append(RemoteSegmentFile(self._storage, segment))
                    yield following[-1]

            by_markers = self._markers.aborted(file, batches.position, len(batches.records), following_files())
            file.fetched_bytes += sum(other.fetched_bytes for other in following)
            known = {(transaction.producer_id, transaction.last_offset) for transaction in found}
            found += [
                transaction
                for transaction in by_markers
                if (transaction.producer_id, transaction.last_offset) not in known
            ]
        return list(dict.fromkeys(found))

    def _before_local(
        self, log: Log, remote: RemoteLogMetadataCache, lineage: Sequence[EpochEntry], offset: int
    ) -> Iterator[RemoteSegment]:
        """Yield the remote segments from the one with `offset` on that begin before the local log."""
        for segment in remote.walk(lineage, offset):
            if segment.start_offset >= log.local_log_start_offset:
                return
            yield segment

    def offset_for_timestamp(
        self, log: Log, remote: RemoteLogMetadataCache, timestamp: int
    ) -> TimestampAndOffset | None:
        """As `Log.offset_for_timestamp`, but including remote records.

        Raises:
            BrokerError, RemoteStorageError, CorruptLog: As `read`.
        """
        lineage, start = log.epochs.entries, log.log_start_offset
        for segment in self._before_local(log, remote, lineage, start):
            if segment.max_timestamp >= timestamp:
                found = offset_in_segment(RemoteSegmentFile(self._storage, segment), timestamp, start)
                if found is not None:
                    return found
        return log.offset_for_timestamp(timestamp)
