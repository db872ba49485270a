"""Offsets for timestamps and for the special timestamps of ListOffsets (Kafka: Partition.fetchOffsetForTimestamp).

Special timestamps are known at once. A query by timestamp reads the log: locally in a worker thread, with `search`, or
in remote storage, with `search_remote`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.file_handles import FileSlice
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.timestamp_lookup import EARLIEST, LATEST, MAX_TIMESTAMP, TimestampAndOffset
from kafkalog_spark.format import layout

if TYPE_CHECKING:
    from kafkalog_broker.remote.remote_reads import RemoteReads  # loaded only with remote storage

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
NO_OFFSET = TimestampAndOffset(-1, -1, -1)
AT_ONCE_S = 0.005
"""Time for which the queries of one request keep a thread before those of other requests run."""

K = TypeVar("K", bound=Hashable)


class TimestampQuery(NamedTuple):
    """A query that reads and decompresses batches.

    Attributes:
        log: Log to search.
        timestamp: Smallest timestamp of the wanted record in ms, or MAX_TIMESTAMP.
        end: Offset at which the visible records end.
        needs_timestamps: True if a log whose newest messages have no timestamps is an error.
    """

    log: Log
    timestamp: int
    end: int
    needs_timestamps: bool

    @property
    def is_remote(self) -> bool:
        """True if remote segments have to be searched. As in Kafka, MAX_TIMESTAMP is that of the local log."""
        return self.timestamp != MAX_TIMESTAMP and self.log.local_log_start_offset > self.log.log_start_offset

    def visible(self, found: TimestampAndOffset | None) -> TimestampAndOffset:
        """Return `found` if the client may see it, else NO_OFFSET."""
        return found if found is not None and found.offset < self.end else NO_OFFSET


class Answered(NamedTuple, Generic[K]):
    """Result of a query that was asked under `key`."""

    key: K
    error_code: ErrorCode
    found: TimestampAndOffset


def query(
    log: Log, timestamp: int, *, read_committed: bool, needs_timestamps: bool = False
) -> TimestampAndOffset | TimestampQuery:
    """Return the offset for `timestamp`, or the query that remains to be run.

    The offset is -1 if there is none, as for segments in remote storage of a topic without it.

    Args:
        log: Log of the partition.
        timestamp: Milliseconds, or a special timestamp.
        read_committed: True if the client sees nothing above the last stable offset.
        needs_timestamps: See TimestampQuery.
    """
    end = log.last_stable_offset if read_committed else log.high_watermark
    if timestamp in _SPECIAL:
        offset = _SPECIAL[timestamp](log)
        if timestamp == EARLIEST_PENDING_UPLOAD and offset >= end:
            return NO_OFFSET
        return TimestampAndOffset(-1, offset, log.epochs.epoch_for_offset(offset))
    if timestamp == LATEST:
        return TimestampAndOffset(-1, end, log.leader_epoch)
    return TimestampQuery(log, timestamp, end, needs_timestamps)


def search(queries: list[tuple[K, TimestampQuery]]) -> list[Answered[K]]:
    """Run queries off the end of `queries`, at least one, until AT_ONCE_S are over. Blocks; call from a thread."""
    answers: list[Answered[K]] = []
    end_s = perf_counter() + AT_ONCE_S
    while queries and (not answers or perf_counter() < end_s):
        key, one = queries.pop()
        try:
            answers.append(Answered(key, ErrorCode.none, _search(one)))
        except BrokerError as error:
            answers.append(Answered(key, error.code, NO_OFFSET))
    return answers


async def search_remote(reads: RemoteReads, key: K, one: TimestampQuery, timeout_ms: int) -> Answered[K]:
    """Run a query in remote storage. At or below 0 the timeout is remote.list.offsets.request.timeout.ms."""
    try:
        found = await reads.offset_for_timestamp(one.log, one.timestamp, timeout_ms)
    except BrokerError as error:
        return Answered(key, error.code, NO_OFFSET)
    return Answered(key, ErrorCode.none, one.visible(found))


def _search(one: TimestampQuery) -> TimestampAndOffset:
    log = one.log
    if one.needs_timestamps and _newest_messages_are_v0(log):
        raise BrokerError(
            ErrorCode.unsupported_for_message_format, f"the newest messages of {log.name} are of format v0"
        )
    is_max = one.timestamp == MAX_TIMESTAMP
    return one.visible(log.max_timestamp_offset() if is_max else log.offset_for_timestamp(one.timestamp))


def _newest_messages_are_v0(log: Log) -> bool:
    """Return whether the newest segment with messages begins with one of format v0. Raises BrokerError."""
    newest = next((segment for segment in reversed(log.segments) if segment.size), None)
    if newest is None:
        return False
    return log.read_slice(FileSlice(newest.handle(), layout.MAGIC_AT, 1)) == b"\0"


def _latest_tiered(log: Log) -> int:
    return log.highest_offset_in_remote_storage if log.config.remote_storage_enable else -1


def _earliest_pending_upload(log: Log) -> int:
    if not log.config.remote_storage_enable:
        return -1
    highest = log.highest_offset_in_remote_storage
    if highest < 0:  # nothing is remote, or that is not known yet
        return log.log_start_offset if log.local_log_start_offset == log.log_start_offset else -1
    return max(highest + 1, log.log_start_offset)


_SPECIAL: Mapping[int, Callable[[Log], int]] = {
    EARLIEST: lambda log: log.log_start_offset,
    EARLIEST_LOCAL: lambda log: log.local_log_start_offset,
    LATEST_TIERED: _latest_tiered,
    EARLIEST_PENDING_UPLOAD: _earliest_pending_upload,
}
"""Special timestamps, and the offset that each stands for; -1 if there is none."""
