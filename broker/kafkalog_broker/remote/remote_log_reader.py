"""Reads of remote segments for Fetch and ListOffsets (Kafka: `RemoteLogManager.read`, `findOffsetByTimestamp`).

Reads block, and run on worker threads. Of a log and its metadata they use only lists that are replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar
from uuid import UUID

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.remote.remote_log_metadata_cache import RemoteLogMetadataCache
from kafkalog_broker.remote.remote_segment_file import RemoteSegmentFile
from kafkalog_broker.remote.transaction_markers import TransactionMarkers
from kafkalog_broker.storage.partition.aborted_transactions import aborted_in
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import segments_from
from kafkalog_broker.storage.partition.timestamp_lookup import (
    TimestampAndOffset,
    offset_for_timestamp,
    offset_in_segment,
)
from kafkalog_spark.errors import RemoteResourceNotFound
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.transaction_index import AbortedTransaction, collect_aborted
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment

MAX_BYTES = 2 << 20
"""Largest number of bytes per read, unless a single batch has more. Consumers request 1 MB per partition by default."""
ResultT = TypeVar("ResultT")
_MAX_POSITIONS = 256  # cached positions: this many consumers resume without an index look-up


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
        raise log.partition_error(
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
        up_to = batches.next_offset
        found: list[AbortedTransaction] = []
        may_be_incomplete = False

        def search(local_start: int) -> None:
            nonlocal may_be_incomplete
            found.clear()
            until = offset
            for segment in remote_segments(remote, lineage, offset, local_start):
                indexed = RemoteSegmentFile(self._storage, segment)
                in_segment = collect_aborted(indexed.aborted(), offset, up_to)
                found.extend(in_segment.transactions)
                if in_segment.is_complete:
                    return
                may_be_incomplete = may_be_incomplete or not indexed.has_whole_transaction_index
                until = segment.until
            found.extend(log.search_segments(lambda local: aborted_in(segments_from(local, until), offset, up_to)))

        while_local_start_stays(log, search)
        if may_be_incomplete:
            following: list[RemoteSegmentFile] = []

            def following_files() -> Iterator[RemoteSegmentFile]:
                for segment in remote_segments(remote, lineage, file.segment.until, log.local_log_start_offset):
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

    def offset_for_timestamp(
        self, log: Log, remote: RemoteLogMetadataCache, timestamp: int
    ) -> TimestampAndOffset | None:
        """As timestamp_lookup.offset_for_timestamp, but including remote records.

        Raises:
            BrokerError, RemoteStorageError, CorruptLog: As `read`.
        """
        lineage, start = log.epochs.entries, log.log_start_offset

        def search(local_start: int) -> TimestampAndOffset | None:
            for segment in remote_segments(remote, lineage, start, local_start):
                if segment.max_timestamp >= timestamp:
                    found = offset_in_segment(RemoteSegmentFile(self._storage, segment), timestamp, start)
                    if found is not None:
                        return found
            return offset_for_timestamp(log, timestamp)

        return while_local_start_stays(log, search)


def while_local_start_stays(log: Log, search: Callable[[int], ResultT]) -> ResultT:
    """Return `search(local log start offset)`. Repeat it if local retention has moved that offset meanwhile.

    For searches in the remote segments below this offset, and then in the local ones. Without the repetition, they
    would miss the segments that retention removes in between.
    """
    while True:
        local_start = log.local_log_start_offset
        result = search(local_start)
        if log.local_log_start_offset == local_start:
            return result


def remote_segments(
    remote: RemoteLogMetadataCache, lineage: Sequence[EpochEntry], offset: int, until: int
) -> Iterator[RemoteSegment]:
    """Yield the remote segments from the one with `offset` on that begin before `until`."""
    for segment in remote.walk(lineage, offset):
        if segment.start_offset >= until:
            return
        yield segment
