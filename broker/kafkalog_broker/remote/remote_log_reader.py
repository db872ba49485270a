"""Reads of remote segments for Fetch and ListOffsets (RemoteLogReader, RemoteLogManager.read, findOffsetByTimestamp).
They block, in worker threads; what is known of a log here are lists that are replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.remote.remote_log_metadata_cache import RemoteLogMetadataCache
from kafkalog_broker.remote.transaction_markers import TransactionMarkers
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import segments_from
from kafkalog_broker.storage.partition.offset_lookup import TimestampAndOffset, aborted_in, offset_in_segment
from kafkalog_broker.storage.partition.segment_lookup import SCAN_READ, SegmentLookup
from kafkalog_spark.errors import CorruptIndex, CorruptLog, RemoteResourceNotFound
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


class RemoteSegmentFile(SegmentLookup):
    """Blocks: for worker threads, one at a time. Raises RemoteStorageError and what RemoteStorage.fetch raises."""

    def __init__(self, storage: RemoteStorage, segment: RemoteSegment) -> None:
        self.segment = segment
        self.base_offset = segment.start_offset
        self.end = segment.size, segment.until
        self.log_path = f"{segment.name}.log"
        self.time_lookup_cache: dict[tuple[int, int, int], Any] = {}
        self.fetched_bytes = 0
        self._storage = storage
        self._index: OffsetIndex | None = None
        self._held_at, self._held = 0, b""

    def handle(self) -> RemoteSegmentFile:
        return self

    def read(self, position: int, size: int) -> bytes:
        """The bytes [position, position + size), fewer only at the end; reading within them again needs no request.

        Raises CorruptLog if remote storage has fewer bytes than the metadata of the segment says.
        """
        at = self.hold(position, size)
        return self._held[at : at + size]

    def hold(self, position: int, size: int) -> int:
        """Fetch the bytes that `read` would return, for all reads within them; returns their place in those held."""
        at = position - self._held_at
        expected = min(size, self.size - position)
        if 0 <= at <= at + expected <= len(self._held):
            return at
        self._held = self._storage.fetch(self.segment, position, position + max(size, _AHEAD))
        self._held_at = position
        self.fetched_bytes += len(self._held)
        if len(self._held) < expected:
            raise CorruptLog(
                f"remote storage has {len(self._held)} bytes of the segment from byte {position} on, expected "
                f"{self.size - position}: the segment has {self.size} bytes by __remote_log_metadata",
                path=self.log_path,
                position=position,
            )
        return 0

    def time_index(self) -> TimeIndex:
        return parse_time_index(self._storage.fetch_index(self.segment, RemoteFile.TIME_INDEX), self.base_offset)

    def aborted(self) -> Sequence[AbortedTransaction]:
        """The entries of the transaction index, of which some may be lost; see `has_whole_transaction_index`."""
        if self.segment.transaction_index_empty:
            return ()
        data = self._storage.fetch_index(self.segment, RemoteFile.TRANSACTION_INDEX)
        try:
            return parse_transaction_index(data, self.base_offset)
        except CorruptIndex as error:
            raise error.at(path=f"{self.segment.name}.txnindex") from None

    @property
    def has_whole_transaction_index(self) -> bool:
        """True if `aborted` is known to give all entries."""
        return self.segment.transaction_index_empty or self._storage.knows_transaction_index(self.segment)

    def boundary(self, start: int, limit: int) -> tuple[int, int]:
        """As in SegmentLookup, but each batch is looked at, and the header after them: it shows whether the offsets of
        the last batch are right. Reading within these bytes needs no further request."""
        at = self.hold(start, limit - start + SCAN_READ)
        return self.check_batches(self._held, at, start, limit)

    def _index_floor(self, target: int, field: int) -> tuple[int, int]:
        if self._index is None:
            data = self._storage.fetch_index(self.segment, RemoteFile.OFFSET_INDEX)
            self._index = parse_offset_index(data, self.base_offset)
        entry = self._index.floor_position(target) if field else self._index.floor(self.base_offset + target)
        return entry.offset, entry.position if entry.position < self.size else 0


class RemoteRead(NamedTuple):
    """Whole batches from a remote segment. aborted: None unless asked for. fetched_bytes: asked of remote storage."""

    records: bytes
    next_offset: int
    aborted: list[AbortedTransaction] | None
    fetched_bytes: int


class _Batches(NamedTuple):
    """Batches of a segment, the byte where they begin, and the offset after them."""

    records: bytes
    position: int
    next_offset: int


class RemoteLogReader:
    def __init__(self, storage: RemoteStorage) -> None:
        self._storage = storage
        self._places: dict[tuple[UUID, int], int] = {}
        self._markers = TransactionMarkers()

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
            f"offset {offset} of leader epoch {log.epochs.epoch_of(offset)} does not exist in remote storage; the log "
            f"goes from {log.log_start_offset} to {log.log_end_offset}",
            offset,
        )

    def _batches(self, file: RemoteSegmentFile, offset: int, max_bytes: int, *, at_least_one: bool) -> _Batches | None:
        """None when the segment holds nothing at or past `offset`."""
        segment = file.segment
        position = self._places.get((segment.segment_id, offset))
        if position is None:
            bounds = file.locate(offset)
            if bounds is None:
                return None
            position = bounds.position
        if position >= file.size:
            return None
        end, next_offset = file.boundary(position, position + max_bytes)
        if end == position:
            if not at_least_one:
                return _Batches(b"", position, offset)
            first = next(file.bounds_from(position))
            end, next_offset = file.boundary(position, first.end)
        if end == file.size:
            next_offset = segment.until
        records = file.read(position, end - position)
        if len(self._places) >= _REMEMBERED:
            with suppress(StopIteration, RuntimeError):  # other threads change them, too
                self._places.pop(next(iter(self._places)), None)  # the oldest
        self._places[segment.segment_id, next_offset] = end
        return _Batches(records, position, next_offset)

    def _aborted(
        self, log: Log, remote: RemoteLogMetadataCache, lineage: Sequence[EpochEntry], offset: int,
        file: RemoteSegmentFile, batches: _Batches,
    ) -> list[AbortedTransaction]:  # fmt: skip
        """Of the transactions with records in the batches of `file` from `offset` on those that were aborted, by remote
        transaction indexes and, past the last remote segment, by local ones
        (collectAbortedTransactionInRemoteSegments). Where an index may be incomplete, markers tell the rest."""
        found: list[AbortedTransaction] = []
        until, up_to = offset, batches.next_offset
        is_complete = may_lack = False
        for segment in self._before_local(log, remote, lineage, offset):
            indexed = RemoteSegmentFile(self._storage, segment)
            search = collect_aborted(indexed.aborted(), offset, up_to)
            found += search.transactions
            is_complete = search.complete
            if is_complete:
                break
            may_lack = may_lack or not indexed.has_whole_transaction_index
            until = segment.until
        if not is_complete:
            with log.failing(nothing_happened=True):
                found += aborted_in(segments_from(log.segments, until), offset, up_to)
        if may_lack:
            following: list[RemoteSegmentFile] = []

            def opened() -> Iterator[RemoteSegmentFile]:
                for segment in self._before_local(log, remote, lineage, file.segment.until):
                    following.append(RemoteSegmentFile(self._storage, segment))
                    yield following[-1]

            by_markers = self._markers.aborted(file, batches.position, len(batches.records), opened())
            file.fetched_bytes += sum(other.fetched_bytes for other in following)
            known = {(transaction.producer_id, transaction.last_offset) for transaction in found}
            found += [one for one in by_markers if (one.producer_id, one.last_offset) not in known]
        return list(dict.fromkeys(found))

    def _before_local(
        self, log: Log, remote: RemoteLogMetadataCache, lineage: Sequence[EpochEntry], offset: int
    ) -> Iterator[RemoteSegment]:
        """Remote segments from that of `offset` on that begin before the local log."""
        for segment in remote.walk(lineage, offset):
            if segment.start_offset >= log.local_log_start_offset:
                return
            yield segment

    def offset_for_timestamp(
        self, log: Log, remote: RemoteLogMetadataCache, timestamp: int
    ) -> TimestampAndOffset | None:
        """As Log.offset_for_timestamp, of remote records too. Raises BrokerError, RemoteStorageError, CorruptLog."""
        lineage, start = log.epochs.entries, log.log_start_offset
        for segment in self._before_local(log, remote, lineage, start):
            if segment.max_timestamp >= timestamp:
                found = offset_in_segment(RemoteSegmentFile(self._storage, segment), timestamp, start)
                if found is not None:
                    return found
        return log.offset_for_timestamp(timestamp)
