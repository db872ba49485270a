"""2 ListOffsets, versions 0 to 11: the offset for a timestamp. `fetching/offset_query.py` finds it.

Timestamps of special meaning:

-1 latest               high watermark; the last stable offset with read_committed
-2 earliest             log start offset
-3 max timestamp        v7 (KIP-734)
-4 earliest local       v8: start of the log on disk
-5 latest tiered        v9: last offset in remote storage, -1 without one
-6 earliest pending     v11: first offset that is not in remote storage; -1 for topics without remote storage, and if no
                        visible record is waiting to be copied

v0   responds with a list, as the protocol guides describe it: base offsets of segments that were written by then, and
     the log end offset for -1
v1   one offset; a log whose newest messages have no timestamps, format v0, is UNSUPPORTED_FOR_MESSAGE_FORMAT
v2   isolation level
v4   leader epochs
v10  timeout of look-ups in remote storage, REQUEST_TIMED_OUT; before it remote.list.offsets.request.timeout.ms

A partition that is named more than once is answered once, with INVALID_REQUEST, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.fetch_request import READ_COMMITTED
from kafkalog_broker.fetching.offset_query import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST_TIERED,
    NO_OFFSET,
    Answered,
    TimestampQuery,
    query,
    search,
    search_remote,
)
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import entity, respond, response_structs
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.offset_lookup import EARLIEST, LATEST, MAX_TIMESTAMP
from kafkalog_broker.storage.partition.segment_start_offsets import Place, listed_offsets, segment_places

_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class _Key(NamedTuple):
    topic: str
    partition: int


class _Named(NamedTuple):
    """Partitions of a request: structs of its version by topic and index, and those named more than once."""

    partitions: Mapping[_Key, Any]
    repeated: frozenset[_Key]


@api(2, 0, 11)
async def handle(request: Request, broker: Broker) -> Any:
    time_slice = TimeSlice()
    named = _named_partitions(request)
    if request.version == 0:
        return await _list_segments(request, broker, named, time_slice)
    read_committed = getattr(request.entity, "isolation_level", 0) == READ_COMMITTED
    answers: dict[_Key, Answered[_Key]] = {}
    queries: list[tuple[_Key, TimestampQuery]] = []
    async for key, partition in time_slice.spread(named.partitions.items()):
        try:
            _check(request, key, named)
            log = broker.log(*key)
            log.check_leader_epoch(getattr(partition, "current_leader_epoch", -1))
            _check_timestamp(partition.timestamp, request.version)
            found = query(
                log, partition.timestamp, read_committed=read_committed, needs_timestamps=request.version == 1
            )
            if isinstance(found, TimestampQuery):
                queries.append((key, found))
            else:
                answers[key] = Answered(key, ErrorCode.none, found)
        except BrokerError as error:
            answers[key] = Answered(key, error.code, NO_OFFSET)
    if broker.remote is not None:
        reads = broker.remote.reads
        remote = [(key, one) for key, one in queries if one.is_remote]
        queries = [(key, one) for key, one in queries if not one.is_remote]
        timeout = getattr(request.entity, "timeout", None)
        timeout_ms = 0 if timeout is None else round(timeout.total_seconds() * 1000)
        for answer in await asyncio.gather(*(search_remote(reads, key, one, timeout_ms) for key, one in remote)):
            answers[answer.key] = answer
    while queries:
        for answer in await broker.run_computing(search, queries):
            answers[answer.key] = answer
    struct = response_structs(request).ListOffsetsPartitionResponse
    topics: dict[str, list[Any]] = {}
    # 2 us for each partition: a request for 20,000 would hold up others for 40 ms.
    async for key in time_slice.spread(named.partitions):
        _, code, (timestamp, offset, epoch) = answers[key]
        fields = {"error_code": code, "timestamp": timestamp, "offset": offset, "leader_epoch": epoch}
        topics.setdefault(key.topic, []).append(entity(struct, partition_index=key.partition, **fields))
    return _response(request, topics)


def _named_partitions(request: Request) -> _Named:
    partitions: dict[_Key, Any] = {}
    repeated: set[_Key] = set()
    for topic in request.entity.topics:
        for partition in topic.partitions:
            key = _Key(topic.name, partition.partition_index)
            if key in partitions:
                repeated.add(key)
            partitions[key] = partition
    return _Named(partitions, frozenset(repeated))


def _check(request: Request, key: _Key, named: _Named) -> None:
    request.authorize(key.topic)
    if key in named.repeated:
        raise BrokerError(ErrorCode.invalid_request, "the partition is named more than once")


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < EARLIEST_PENDING_UPLOAD or version < _FIRST_VERSION.get(timestamp, 0):
        raise BrokerError(ErrorCode.unsupported_version, f"timestamp {timestamp} is not known to version {version}")


def _response(request: Request, topics: Mapping[str, list[Any]]) -> Any:
    return respond(request, topics=[{"name": name, "partitions": tuple(answers)} for name, answers in topics.items()])


# ---- version 0


async def _list_segments(request: Request, broker: Broker, named: _Named, time_slice: TimeSlice) -> Any:
    topics: dict[str, list[Any]] = {}
    async for key, partition in time_slice.spread(named.partitions.items()):
        try:
            _check(request, key, named)
            offsets = await _segment_offsets(broker, broker.log(*key), partition.timestamp, partition.max_num_offsets)
            answer: dict[str, Any] = {"old_style_offsets": offsets}
        except BrokerError as error:
            is_offline = error.code is ErrorCode.kafka_storage_error  # unknown to these clients
            answer = {"error_code": ErrorCode.not_leader_or_follower if is_offline else error.code}
        topics.setdefault(key.topic, []).append({"partition_index": key.partition, **answer})
    return _response(request, topics)


async def _segment_offsets(broker: Broker, log: Log, timestamp: int, max_offsets: int) -> list[int]:
    log.check_fetch_offset(log.log_start_offset)  # raises if the log is offline
    if max_offsets < 0:
        raise BrokerError(ErrorCode.unknown_server_error, f"max_num_offsets is {max_offsets}, expected 0 or more")

    def places(*, with_times: bool) -> list[Place]:
        return segment_places(
            log.segments, log.log_start_offset, log.log_end_offset, broker.clock.now_ms(), with_times=with_times
        )

    if timestamp in (LATEST, EARLIEST):
        found = places(with_times=False)
    else:
        try:
            found = await broker.run_blocking(places, with_times=True)
        except OSError as error:
            raise BrokerError(ErrorCode.kafka_storage_error, f"segments cannot be read: {error}") from error
    return listed_offsets(found, timestamp, max_offsets, log.high_watermark)
