"""1 Fetch, versions 0 to 18: whole batches from an offset on, as they lie in the log; up to version 3 messages v0 and
v1, which batches are made for those who cannot read them (`fetching/down_conversion.py`).

Waits up to max_wait_ms for min_bytes, woken by appends; with an error, or data enough, it answers at once. A partition
named several times is read once, as the last mention says.

v0   messages v0; limits are hard: a message larger than that comes cut off
v1   throttle time
v2   messages v1
v3   max_bytes of the answer; a first message larger than that comes whole (KIP-74)
v4   v2 batches, isolation level
v5   log start offset
v7   sessions (KIP-227)
v9   current leader epoch: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
v12  flexible; last fetched epoch: where the client's log is another one, its end here instead of records (KIP-595)
v13  topics by id (KIP-516): UNKNOWN_TOPIC_ID
v15  replica state of followers: of no meaning on one node
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.down_conversion import CONVERTED_BYTES, read_converted
from kafkalog_broker.fetching.fetch_read import READ_COMMITTED, Fetched, FetchedPartition, read_all
from kafkalog_broker.fetching.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MAX_PARTITIONS,
    FetchContext,
    FetchPartition,
    PartitionKey,
    TopicKey,
)
from kafkalog_broker.fetching.long_poll import AWAKE_AT_ONCE, LongPoll, LongPolls
from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import ConnectionInfo, Request, api
from kafkalog_broker.protocol.hot_messages import (
    FetchResponse,
    PartitionFetchResponse,
    RefusedPartitions,
    TopicFetchResponse,
)
from kafkalog_broker.quotas.client_quotas import Client
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.format import layout

if TYPE_CHECKING:
    from kafkalog_broker.remote.remote_log_manager import RemoteLogManager  # which others do without

FIRST_BATCH_VERSION = 4
_FIRST_SESSION_VERSION = 7
_LONG_ANSWER = 2_000  # partitions, some 3 microseconds each
_FIRST_TOPIC_ID_VERSION = 13
_LAST_REPLICA_ID_VERSION = 14  # then it is in the replica state


@api(1, 0, 18)
async def handle(request: Request, broker: Broker) -> FetchResponse:
    asked = request.entity
    turn = TimeSlice()
    try:
        context = _context(request, broker)
    except BrokerError as error:
        return FetchResponse((), error.code)

    def find_log(partition: FetchPartition) -> Log:
        topic: Any = partition.topic
        name = topic if isinstance(topic, str) else broker.topic_name(topic)
        if request.access is not None:
            _check(request, name)
        return broker.log(name, partition.partition)

    if request.version < FIRST_BATCH_VERSION:
        read, min_bytes = _converted(request, broker, context, find_log)
    else:
        max_bytes = min(asked.max_bytes, broker.config.fetch_max_bytes)
        if broker.quotas.in_use:
            max_bytes = min(max_bytes, broker.quotas.fetch_bytes(Client.of_request(request)) or max_bytes)
        min_bytes = min(asked.min_bytes, max_bytes)  # as Kafka: more could never come
        committed = asked.isolation_level == READ_COMMITTED

        async def read(turn: TimeSlice) -> Fetched:
            return await read_all(context.partitions, find_log, max_bytes=max_bytes, committed=committed, turn=turn)

    if turn.over:
        await turn.next()
    fetched = await read(turn)
    remote = broker.remote
    partition = None if remote is None else next((one for one in fetched.partitions if one.remote is not None), None)
    if remote is not None and partition is not None:
        await _read_remotely(remote, fetched, partition, request.connection)
    elif not (fetched.has_errors or context.refused or fetched.size >= min_bytes):
        wait = asked.max_wait.total_seconds()
        if context.partitions and wait > 0:
            fetched = await _wait(request, broker.long_polls, fetched, read, min_bytes, wait)
    if broker.quotas.in_use and fetched.size:
        wait_ms = broker.quotas.record_fetch(Client.of_request(request), fetched.size)
        if wait_ms:
            request.connection.mute(wait_ms / 1000)
            return FetchResponse((), session_id=context.session_id, throttle_time=wait_ms)
    if broker.traffic is not None:
        broker.traffic.fetched(fetched.partitions)
    if len(fetched.partitions) > _LONG_ANSWER:
        await turn.next()
    return _response(context, fetched)


async def _read_remotely(
    remote: RemoteLogManager, fetched: Fetched, partition: FetchedPartition, connection: ConnectionInfo
) -> None:
    """Read what one partition of a fetch has in remote storage, as Kafka; what is late comes with a later fetch."""
    answer, log = partition.answer, partition.log
    assert log is not None
    assert partition.remote is not None
    max_bytes, at_least_one = partition.remote
    try:
        found = await remote.reads.read(
            log, partition.request.fetch_offset, max_bytes, at_least_one=at_least_one, committed=partition.committed,
            hold=connection.hold,
        )  # fmt: skip
    except BrokerError as error:
        partition.answer = PartitionFetchResponse(answer.partition_index, error.code)
        fetched.has_errors = True
        return
    if found is not None and found.records:
        answer.records = [found.records]
        partition.size = len(found.records)
        fetched.size += partition.size
        if found.aborted is not None:
            answer.aborted_transactions = found.aborted


def _check(request: Request, topic: str) -> None:
    asked = request.entity
    replica = asked.replica_id if request.version <= _LAST_REPLICA_ID_VERSION else asked.replica_state.replica_id
    if replica < 0:
        if code := request.refused(topic):
            raise BrokerError(code)
    elif not request.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        raise BrokerError(ErrorCode.topic_authorization_failed)


class _Slot:
    """One of the places of a semaphore, given back while the request waits for remote storage."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places, self._is_held = places, False

    async def __aenter__(self) -> None:
        await self._places.acquire()
        self._is_held = True

    async def __aexit__(self, *_: object) -> None:
        if self._is_held:
            self._places.release()

    async def without(self, call: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any) -> Any:
        self._places.release()
        self._is_held = False
        try:
            return await call(*arguments, **named)
        finally:
            await self.__aenter__()


def _converted(
    request: Request, broker: Broker, context: FetchContext, find_log: Callable[[FetchPartition], Log]
) -> tuple[Callable[[TimeSlice], Awaitable[Fetched]], int]:
    """How to read for a client that knows no v2 batches, and how many bytes are worth an answer."""
    asked, connection = request.entity, request.connection
    max_bytes = min(getattr(asked, "max_bytes", layout.MAX_INT32), broker.config.fetch_max_bytes, CONVERTED_BYTES)

    async def read(turn: TimeSlice) -> Fetched:
        slot, remote = _Slot(broker.converting), broker.remote
        async with slot:
            return await read_converted(
                list(context.partitions), find_log, broker.run_computing, version=request.version,
                max_bytes=max_bytes, begin=request.correlation_id, turn=turn, is_over=lambda: connection.closed,
                read_remotely=None if remote is None else partial(slot.without, remote.reads.read),
            )  # fmt: skip

    return read, min(asked.min_bytes, max_bytes)


def _context(request: Request, broker: Broker) -> FetchContext:
    """Context of the fetch: of its session, or without one. Then only the numbers of partitions that are not there are
    kept: a request may name hundreds of thousands of these."""
    asked, by_id = request.entity, request.version >= _FIRST_TOPIC_ID_VERSION
    wanted: dict[PartitionKey, FetchPartition] = {}
    refused: dict[TopicKey, RefusedPartitions] = {}
    has_session = _has_session(request)
    for topic in asked.topics:
        name = topic.topic_id if by_id else topic.topic
        if not has_session:
            known = broker.topics.by_id(name) if by_id else broker.topics.get(name)
            code = ErrorCode.unknown_topic_id if by_id and known is None else ErrorCode.unknown_topic_or_partition
            count = 0 if known is None else known.partitions
            if request.access is not None and not (by_id and known is None):
                try:
                    _check(request, topic.topic if known is None else known.name)
                except BrokerError as error:
                    code, count = error.code, 0
        for partition in topic.partitions:
            index = partition.partition
            if not has_session and not 0 <= index < count:
                if name not in refused:
                    refused[name] = RefusedPartitions(code)
                refused[name].indexes[index] = None
                continue
            wanted[name, index] = FetchPartition(
                name, index, partition.fetch_offset, partition.partition_max_bytes,
                getattr(partition, "current_leader_epoch", -1), getattr(partition, "last_fetched_epoch", -1),
            )  # fmt: skip
    if not has_session:
        if request.version >= _FIRST_SESSION_VERSION:
            broker.fetch_sessions.close(asked.session_id)
        return FetchContext(list(wanted.values()), refused=refused)
    forgotten = [
        (topic.topic_id if by_id else topic.topic, partition)
        for topic in asked.forgotten_topics_data
        for partition in topic.partitions
    ]
    return broker.fetch_sessions.context(
        asked.session_id, asked.session_epoch, wanted, forgotten, by_id=by_id, now_ms=broker.clock.now_ms()
    )


def _has_session(request: Request) -> bool:
    """None is opened for more partitions than all of them may name."""
    asked = request.entity
    if request.version < _FIRST_SESSION_VERSION or asked.session_epoch == FINAL_EPOCH:
        return False
    named = sum(len(topic.partitions) for topic in asked.topics)
    return asked.session_epoch != INITIAL_EPOCH or named <= MAX_PARTITIONS


async def _wait(
    request: Request, polls: LongPolls, fetched: Fetched, read: Callable[[TimeSlice], Awaitable[Fetched]],
    min_bytes: int, seconds: float,
) -> Fetched:  # fmt: skip
    """Read again when enough has come, until it has or the time is over."""
    loop = asyncio.get_running_loop()
    poll = LongPoll(polls, 0)
    is_over = False

    def time_is_over() -> None:
        nonlocal is_over
        is_over = True
        poll.wake()

    timer = loop.call_later(seconds, time_is_over)
    try:
        while True:
            for one in fetched.partitions:  # it is read again before it is answered; nothing is held meanwhile
                one.answer.records = ()
            poll = LongPoll(polls, min_bytes - fetched.size)
            await _woken(request, polls, poll, fetched, lambda: is_over)
            if not request.connection.closed:
                turn = TimeSlice()
                if polls.awake > AWAKE_AT_ONCE:
                    await turn.begin()
                if not (is_over and all(map(_is_as_it_was, fetched.partitions))):
                    fetched = await read(turn)
            if fetched.has_errors or fetched.size >= min_bytes or is_over or request.connection.closed:
                return fetched
    finally:
        timer.cancel()


def _is_as_it_was(one: FetchedPartition) -> bool:
    """True if reading a partition, which gave no records, would give the same again."""
    log, answer = one.log, one.answer
    return (
        log is not None
        and not one.size
        and log.appended_bytes == one.appended_bytes
        and log.high_watermark == answer.high_watermark
        and log.last_stable_offset == answer.last_stable_offset
        and log.log_start_offset == answer.log_start_offset
        and log.failure is None
        and not log.is_closed
    )


async def _woken(
    request: Request, polls: LongPolls, poll: LongPoll, fetched: Fetched, is_over: Callable[[], bool]
) -> None:
    forget = request.connection.on_close(poll.wake)
    watched: list[Log] = []
    try:
        for one in fetched.partitions:
            if one.log is not None:
                watched.append(one.log)
                polls.watch(poll, one)
        if not is_over():  # or it was while the logs were being watched, and woke a poll that was not this one
            await poll.woken
    finally:
        forget()
        polls.forget(poll, watched)


def _response(context: FetchContext, fetched: Fetched) -> FetchResponse:
    session, incremental = context.session, context.incremental
    topics: list[TopicFetchResponse] = []
    """A topic again whenever it changes: partitions of a session are in the order in which they are read."""
    name: Any = None
    partitions: list[PartitionFetchResponse] = []
    for one in fetched.partitions:
        asked, answer = one.request, one.answer
        topic = asked.topic
        if session is not None:
            must_tell = session.must_tell(
                topic, asked.partition, has_records=one.size > 0,
                error=answer.error_code != 0 or answer.diverging_epoch is not None,
                high_watermark=answer.high_watermark, log_start=answer.log_start_offset,
            )  # fmt: skip
            if incremental and not must_tell:
                continue
        if topic != name:
            name, partitions = topic, []
            topics.append(TopicFetchResponse(topic, partitions))
        partitions.append(answer)
    topics += [TopicFetchResponse(topic, refused) for topic, refused in context.refused.items()]
    return FetchResponse(topics, session_id=context.session_id)
