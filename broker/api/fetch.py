"""1 Fetch, versions 4 to 18: whole batches from an offset on, as they lie in the log.

Waits up to max_wait_ms for min_bytes, woken by appends; with an error, or data enough, it answers at once.

v5   log start offset
v7   sessions (KIP-227)
v9   current leader epoch: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
v12  flexible
v13  topics by id (KIP-516): UNKNOWN_TOPIC_ID
v15  replica state of followers: of no meaning on one node
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Any

from broker.errors import BrokerError, ErrorCode
from broker.fetching.fetch_read import READ_COMMITTED, Fetched, read_all
from broker.fetching.fetch_session import FetchContext, FetchPartition
from broker.protocol.api_registry import Encoded, Request, api
from broker.protocol.fetch_response import encode_fetch_response

if TYPE_CHECKING:
    from broker.server import Broker
    from broker.storage.log import Log

_FIRST_SESSION_VERSION = 7
_FIRST_TOPIC_ID_VERSION = 13


@api(1, 4, 18)
async def handle(request: Request, broker: Broker) -> Encoded:
    asked = request.entity
    try:
        context = _context(request, broker)
    except BrokerError as error:
        return encode_fetch_response(request.version, [], error_code=error.code)

    def find_log(partition: FetchPartition) -> Log:
        topic = partition.topic
        if isinstance(topic, str):
            return broker.log(topic, partition.partition)
        known = broker.topics.by_id(topic)  # type: ignore[arg-type]  # a UUID: the request is of version 13 or later
        if known is None:
            raise BrokerError(ErrorCode.unknown_topic_id, f"there is no topic with id {topic}")
        return broker.log(known.name, partition.partition)

    max_bytes = min(asked.max_bytes, broker.config.fetch_max_bytes)

    def read() -> Fetched:
        return read_all(
            context.partitions, find_log, max_bytes=max_bytes, committed=asked.isolation_level == READ_COMMITTED
        )

    fetched = read()
    wait = asked.max_wait.total_seconds()
    if context.partitions and wait > 0 and not _enough(fetched, asked.min_bytes):
        fetched = await _wait(request, fetched, read, asked.min_bytes, wait)
    return _encode(request.version, context, fetched)


def _context(request: Request, broker: Broker) -> FetchContext:
    asked, by_id = request.entity, request.version >= _FIRST_TOPIC_ID_VERSION
    wanted = [
        FetchPartition(
            topic.topic_id if by_id else topic.topic,
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            getattr(partition, "current_leader_epoch", -1),
        )
        for topic in asked.topics
        for partition in topic.partitions
    ]
    if request.version < _FIRST_SESSION_VERSION:
        return FetchContext(wanted)
    forgotten = [
        (topic.topic_id if by_id else topic.topic, partition)
        for topic in asked.forgotten_topics_data
        for partition in topic.partitions
    ]
    return broker.fetch_sessions.context(
        asked.session_id, asked.session_epoch, wanted, forgotten, by_id=by_id, now_ms=broker.clock.now_ms()
    )


def _enough(fetched: Fetched, min_bytes: int) -> bool:
    return fetched.has_errors or fetched.size >= min_bytes


async def _wait(request: Request, fetched: Fetched, read: Any, min_bytes: int, seconds: float) -> Fetched:
    """Read again whenever one of the logs moved, until there is enough or the time is over."""
    loop = asyncio.get_running_loop()
    moved = asyncio.Event()
    logs = {id(one.log): one.log for one in fetched.partitions if one.log is not None}.values()
    for log in logs:
        log.subscribe(moved.set)
    forget = request.connection.on_close(moved.set)
    over = asyncio.Event()

    def time_is_over() -> None:
        over.set()
        moved.set()

    timer = loop.call_later(seconds, time_is_over)
    try:
        while True:
            await moved.wait()
            moved.clear()
            if request.connection.closed:
                return fetched
            fetched = read()
            if over.is_set() or _enough(fetched, min_bytes):
                return fetched
    finally:
        timer.cancel()
        forget()
        for log in logs:
            log.unsubscribe(moved.set)


def _encode(version: int, context: FetchContext, fetched: Fetched) -> Encoded:
    session, told = context.session, fetched.partitions
    if session is not None:
        told = [
            one
            for one in told
            if session.must_tell(
                one.asked.topic,
                one.asked.partition,
                has_records=one.size > 0,
                error=one.answer.error_code != 0,
                high_watermark=one.answer.high_watermark,
                log_start=one.answer.log_start_offset,
            )
            or not context.incremental
        ]
    topics: Any = [
        (topic, [one.answer for one in group]) for topic, group in groupby(told, key=lambda one: one.asked.topic)
    ]
    return encode_fetch_response(version, topics, session_id=context.session_id)
