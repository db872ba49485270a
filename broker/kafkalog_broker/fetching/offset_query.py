"""Offsets for timestamps and for the special timestamps of ListOffsets (Kafka: Partition.fetchOffsetForTimestamp).

`query_offset` returns the offset for a special timestamp immediately. Any other query reads batches: `search` reads the
local log, in a worker thread, and `search_remote` reads remote storage.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.timestamp_lookup import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    TimestampAndOffset,
    max_timestamp_offset,
    offset_for_timestamp,
)
from kafkalog_spark.format import layout

if TYPE_CHECKING:
    from kafkalog_broker.remote.remote_reads import RemoteReads  # loaded only with remote storage

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
NO_OFFSET = TimestampAndOffset(-1, -1, -1)
QUERY_SLICE_S = 0.005
"""Time after which the queries of one request release their thread to those of other requests."""

K = TypeVar("K", bound=Hashable)


class TimestampQuery(NamedTuple):
    """A query that reads and decompresses batches.

    Attributes:
        log: Log to search.
        timestamp: Smallest timestamp of the wanted record in ms, or MAX_TIMESTAMP.
        end: Offset at which the visible records end.
        needs_timestamps: True if the query fails for a log whose newest messages have no timestamps (format v0).
    """

    log: Log
    timestamp: int
    end: int
    needs_timestamps: bool

    @property
    def is_remote(self) -> bool:
        """True if remote segments have to be searched. As in Kafka, MAX_TIMESTAMP is that of the local log."""
        return self.timestamp != MAX_TIMESTAMP and self.log.local_log_start_offset > self.log.log_start_offset

    def visible(self, offset: TimestampAndOffset | None) -> TimestampAndOffset:
        """Return the result of the search if the client may see the record, else NO_OFFSET."""
        return offset if offset is not None and offset.offset < self.end else NO_OFFSET


class QueryResult(NamedTuple, Generic[K]):
    """Result of a query. The caller identifies the query by `key`."""

    key: K
    error_code: ErrorCode
    offset: TimestampAndOffset


def query_offset(
    log: Log, timestamp: int, *, read_committed: bool, needs_timestamps: bool = False
) -> TimestampAndOffset | TimestampQuery:
    """Return the offset for `timestamp`, or a query that the caller must run if batches have to be read.

    The offset is -1 if there is none, for example the last tiered offset of a topic without remote storage.

    Args:
        log: Log of the partition.
        timestamp: Milliseconds, or a special timestamp.
        read_committed: True if the client sees nothing above the last stable offset.
        needs_timestamps: See TimestampQuery.
    """
    end = log.last_stable_offset if read_committed else log.high_watermark
    if timestamp in _SPECIAL_OFFSETS:
        offset = _SPECIAL_OFFSETS[timestamp](log)
        if timestamp == EARLIEST_PENDING_UPLOAD and offset >= end:
            return NO_OFFSET
        return TimestampAndOffset(-1, offset, log.epochs.epoch_for_offset(offset))
    if timestamp == LATEST:
        return TimestampAndOffset(-1, end, log.leader_epoch)
    return TimestampQuery(log, timestamp, end, needs_timestamps)


def search(queries: list[tuple[K, TimestampQuery]]) -> list[QueryResult[K]]:
    """Remove queries from the end of `queries` and run them, at least one, until QUERY_SLICE_S have passed.

    Blocks; call from a thread.
    """
    results: list[QueryResult[K]] = []
    end_s = perf_counter() + QUERY_SLICE_S
    while queries and (not results or perf_counter() < end_s):
        key, query = queries.pop()
        try:
            results.append(QueryResult(key, ErrorCode.none, _search(query)))
        except BrokerError as error:
            results.append(QueryResult(key, error.code, NO_OFFSET))
    return results


async def search_remote(reads: RemoteReads, key: K, query: TimestampQuery, timeout_ms: int) -> QueryResult[K]:
    """Run a query in remote storage.

    Args:
        reads: Reads from remote storage.
        key: Key of the query.
        query: The query.
        timeout_ms: Timeout; if it is not above 0, remote.list.offsets.request.timeout.ms.
    """
    try:
        offset = await reads.offset_for_timestamp(query.log, query.timestamp, timeout_ms)
    except BrokerError as error:
        return QueryResult(key, error.code, NO_OFFSET)
    return QueryResult(key, ErrorCode.none, query.visible(offset))


def _search(query: TimestampQuery) -> TimestampAndOffset:
    log = query.log
    if query.needs_timestamps and _newest_messages_are_v0(log):
        raise BrokerError(
            ErrorCode.unsupported_for_message_format, f"the newest messages of {log.name} are of format v0"
        )
    is_max = query.timestamp == MAX_TIMESTAMP
    return query.visible(max_timestamp_offset(log) if is_max else offset_for_timestamp(log, query.timestamp))


def _newest_messages_are_v0(log: Log) -> bool:
    """Return whether the newest segment with messages begins with one of format v0. Raises BrokerError."""
    return log.search_segments(_begins_with_v0)


def _begins_with_v0(segments: Sequence[LogSegment]) -> bool:
    newest = next((segment for segment in reversed(segments) if segment.size), None)
    return newest is not None and newest.handle().read(layout.MAGIC_AT, 1) == b"\0"


def _latest_tiered(log: Log) -> int:
    return log.highest_offset_in_remote_storage if log.config.remote_storage_enable else -1


def _earliest_pending_upload(log: Log) -> int:
    if not log.config.remote_storage_enable:
        return -1
    highest = log.highest_offset_in_remote_storage
    if highest < 0:  # nothing is remote, or that is not known yet
        return log.log_start_offset if log.local_log_start_offset == log.log_start_offset else -1
    return max(highest + 1, log.log_start_offset)


_SPECIAL_OFFSETS: Mapping[int, Callable[[Log], int]] = {
    EARLIEST: lambda log: log.log_start_offset,
    EARLIEST_LOCAL: lambda log: log.local_log_start_offset,
    LATEST_TIERED: _latest_tiered,
    EARLIEST_PENDING_UPLOAD: _earliest_pending_upload,
}
"""Offset for each special timestamp except LATEST and MAX_TIMESTAMP; -1 if there is none."""
