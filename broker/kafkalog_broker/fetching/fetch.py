"""Reads records for Fetch requests: session context, read, wait, and the read from remote storage.

In Kafka: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, DelayedFetch and DelayedRemoteFetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.fetching.converting_reader import ConvertingReader
from kafkalog_broker.fetching.fetch_read import Fetched, FetchedPartition, FindLog, read_partitions
from kafkalog_broker.fetching.fetch_request import FetchRequest
from kafkalog_broker.fetching.fetch_session import FetchContext, FetchSessions
from kafkalog_broker.fetching.long_poll import AWAKE_AT_ONCE, LongPoll, LongPolls
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

if TYPE_CHECKING:
    from kafkalog_broker.remote.remote_reads import RemoteReads  # loaded only with remote storage

_new_tuple = tuple.__new__  # FetchResult without the cost of its constructor

_Read = Callable[[TimeSlice], Awaitable[Fetched]]


class FetchResult(NamedTuple):
    """Result of one Fetch.

    Attributes:
        context: Session of the request, and partitions that could not be read at all.
        fetched: Results of the partitions that were read.
    """

    context: FetchContext
    fetched: Fetched


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Reads records for Fetch requests. One per broker; call from the event loop.

    Attributes:
        sessions: Fetch sessions.
        polls: Requests that wait for records.
        converting: Reader for clients of Fetch 0 to 3.
        clock: Clock of the broker.
    """

    sessions: FetchSessions
    polls: LongPolls
    converting: ConvertingReader
    clock: Clock

    async def fetch(
        self,
        request: FetchRequest,
        find_log: FindLog,
        connection: ConnectionInfo,
        remote: RemoteReads | None,
        time_slice: TimeSlice,
    ) -> FetchResult:
        """Read the requested partitions, and wait for records if there are too few.

        The wait ends when `min_bytes` are available, a partition has an error, `max_wait_s` have passed or the
        connection is closed. A response with records from remote storage does not wait.

        Args:
            request: The request.
            find_log: Returns the log of a partition, if the sender may read it.
            connection: Connection of its sender.
            remote: Reads from remote storage, None without it.
            time_slice: Slice in which the handler began. A request with many partitions may have used it up.

        Raises:
            BrokerError: The session does not exist or does not accept the request.
        """
        context = self.sessions.new_context(request, self.clock.now_ms())
        read = self._reader(request, context, find_log, connection, remote)
        if time_slice.is_over:
            await time_slice.wait_turn()
        fetched = await read(time_slice)
        if remote is not None and (index := _first_remote(fetched.partitions)) is not None:
            fetched = await _read_remote(remote, request, fetched, index, connection)
        elif fetched.size < request.min_bytes and _may_wait(request, context, fetched):
            fetched = await self._read_when_enough(request, read, fetched, connection)
        return _new_tuple(FetchResult, (context, fetched))

    def _reader(
        self, request: FetchRequest, context: FetchContext, find_log: FindLog, connection: ConnectionInfo,
        remote: RemoteReads | None,
    ) -> _Read:  # fmt: skip
        """Return the function that reads all partitions once."""
        if request.legacy is None:
            return partial(read_partitions, context.partitions, find_log, request.max_bytes, request.read_committed)
        return partial(
            self.converting.read, context.partitions, find_log, legacy=request.legacy, max_bytes=request.max_bytes,
            first=request.correlation_id, is_closed=lambda: connection.is_closed, remote=remote,
        )  # fmt: skip

    async def _read_when_enough(
        self, request: FetchRequest, read: _Read, fetched: Fetched, connection: ConnectionInfo
    ) -> Fetched:
        """Wait for `min_bytes`, an error or the end of the wait, and read again (DelayedFetch)."""
        polls = self.polls
        poll = LongPoll(polls, 0)
        is_expired = False

        def expire() -> None:
            nonlocal is_expired
            is_expired = True
            poll.wake()

        timer = asyncio.get_running_loop().call_later(request.max_wait_s, expire)
        try:
            while True:
                fetched = fetched.without_records()
                poll = LongPoll(polls, request.min_bytes - fetched.size)
                forget_connection = connection.on_close(poll.wake)
                try:
                    polls.watch(poll, fetched.partitions)
                    if not is_expired:  # otherwise `expire` has woken an earlier poll
                        await poll.woken
                finally:
                    forget_connection()
                    polls.forget(poll, fetched.partitions)
                if connection.is_closed:
                    return fetched
                time_slice = TimeSlice()
                if polls.awake > AWAKE_AT_ONCE:
                    await time_slice.wait_slice()
                if is_expired and all(map(_is_unchanged, fetched.partitions)):
                    return fetched
                fetched = await read(time_slice)
                if fetched.must_respond or fetched.size >= request.min_bytes or is_expired or connection.is_closed:
                    return fetched
        finally:
            timer.cancel()


def _may_wait(request: FetchRequest, context: FetchContext, fetched: Fetched) -> bool:
    return not fetched.must_respond and not context.missing and request.max_wait_s > 0 and bool(context.partitions)


def _first_remote(partitions: Sequence[FetchedPartition]) -> int | None:
    """Return the index of the first partition whose records are in remote storage."""
    return next((index for index, partition in enumerate(partitions) if partition.remote is not None), None)


async def _read_remote(
    remote: RemoteReads, request: FetchRequest, fetched: Fetched, index: int, connection: ConnectionInfo
) -> Fetched:
    """Read one partition from remote storage. As in Kafka, others are read by the next requests.

    A read that takes too long returns no records; the next request finds them in a cache.
    """
    partition = fetched.partitions[index]
    log, remote_range = partition.log, partition.remote
    assert log is not None
    assert remote_range is not None
    partitions = list(fetched.partitions)
    try:
        read = await remote.read(
            log, partition.request.fetch_offset, remote_range.max_bytes, at_least_one=remote_range.at_least_one,
            committed=request.read_committed, hold=connection.hold,
        )  # fmt: skip
    except BrokerError as error:
        partitions[index] = FetchedPartition(partition.request, error.code)
        return Fetched(partitions, fetched.size, must_respond=True)
    if read is None or not read.records:
        return fetched
    size = len(read.records)
    aborted = partition.aborted_transactions if read.aborted is None else read.aborted
    partitions[index] = partition._replace(records=[read.records], size=size, aborted_transactions=aborted)
    return Fetched(partitions, fetched.size + size, fetched.must_respond)


def _is_unchanged(fetched: FetchedPartition) -> bool:
    """Return whether reading a partition, which had no records, would return the same again."""
    log = fetched.log
    return (
        log is not None
        and not fetched.size
        and log.appended_bytes == fetched.appended_bytes
        and log.high_watermark == fetched.high_watermark
        and log.last_stable_offset == fetched.last_stable_offset
        and log.log_start_offset == fetched.log_start_offset
        and log.failure is None
        and not log.is_closed
    )
