"""2 ListOffsets, versions 0 to 11: the offset for a timestamp. `fetching/offset_query.py` finds it.

Special timestamps:

-1 latest               high watermark, or the last stable offset with read_committed
-2 earliest             log start offset
-3 max timestamp        v7 (KIP-734)
-4 earliest local       v8: start offset of the local log
-5 latest tiered        v9: last offset in remote storage, -1 without one
-6 earliest pending     v11: first offset that is not in remote storage; -1 for topics without remote storage, and if no
                        visible record is waiting to be copied

v0   a list of offsets, as the protocol guides describe it: base offsets of the segments last modified at or before
     the timestamp, and the log end offset for -1
v1   one offset; UNSUPPORTED_FOR_MESSAGE_FORMAT if the newest messages have no timestamps (format v0)
v2   isolation level
v4   leader epochs
v10  timeout of look-ups in remote storage (REQUEST_TIMED_OUT); earlier versions use
     remote.list.offsets.request.timeout.ms

As in Kafka, a repeated partition has one result, with INVALID_REQUEST.
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
    QueryResult,
    TimestampQuery,
    query_offset,
    search,
    search_remote,
)
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response, build_struct, response_structs
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.partition.leader_epoch_lookup import check_leader_epoch
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.segment_start_offsets import OffsetAndTime, offsets_before, segment_start_offsets
from kafkalog_broker.storage.partition.timestamp_lookup import EARLIEST, LATEST, MAX_TIMESTAMP

_FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class _Key(NamedTuple):
    """Topic and index of a partition."""

    topic: str
    partition: int


class _RequestedPartitions(NamedTuple):
    """The partitions of a request.

    Attributes:
        partitions: The request's struct of each partition.
        repeated: Partitions that occur more than once.
    """

    partitions: Mapping[_Key, Any]
    repeated: frozenset[_Key]


@api(2, 0, 11)
async def list_offsets(request: Request, broker: Broker) -> Any:
    time_slice = TimeSlice()
    requested = _requested_partitions(request)
    if request.version == 0:
        return await _list_segments(request, broker, requested, time_slice)
    read_committed = request.entity.isolation_level == READ_COMMITTED
    results: dict[_Key, QueryResult[_Key]] = {}
    queries: list[tuple[_Key, TimestampQuery]] = []
    async for key, partition in time_slice.spread(requested.partitions.items()):
        try:
            _check(request, key, requested)
            log = broker.log(*key)
            check_leader_epoch(log, partition.current_leader_epoch)
            _check_timestamp(partition.timestamp, request.version)
            offset_or_query = query_offset(
                log, partition.timestamp, read_committed=read_committed, needs_timestamps=request.version == 1
            )
            if isinstance(offset_or_query, TimestampQuery):
                queries.append((key, offset_or_query))
            else:
                results[key] = QueryResult(key, ErrorCode.none, offset_or_query)
        except BrokerError as error:
            results[key] = QueryResult(key, error.code, NO_OFFSET)
    if broker.remote is not None:
        reads = broker.remote.reads
        remote = [(key, query) for key, query in queries if query.is_remote]
        queries = [(key, query) for key, query in queries if not query.is_remote]
        timeout_ms = round(request.entity.timeout.total_seconds() * 1000)
        for result in await asyncio.gather(*(search_remote(reads, key, query, timeout_ms) for key, query in remote)):
            results[result.key] = result
    while queries:
        for result in await broker.run_computing(search, queries):
            results[result.key] = result
    struct = response_structs(request).ListOffsetsPartitionResponse
    topics: dict[str, list[Any]] = {}
    # A request may have thousands of partitions, so the response is made in time slices.
    async for key in time_slice.spread(requested.partitions):
        _, code, (timestamp, offset, epoch) = results[key]
        fields = {"error_code": code, "timestamp": timestamp, "offset": offset, "leader_epoch": epoch}
        topics.setdefault(key.topic, []).append(build_struct(struct, partition_index=key.partition, **fields))
    return _response(request, topics)


def _requested_partitions(request: Request) -> _RequestedPartitions:
    partitions: dict[_Key, Any] = {}
    repeated: set[_Key] = set()
    for topic in request.entity.topics:
        for partition in topic.partitions:
            key = _Key(topic.name, partition.partition_index)
            if key in partitions:
                repeated.add(key)
            partitions[key] = partition
    return _RequestedPartitions(partitions, frozenset(repeated))


def _check(request: Request, key: _Key, requested: _RequestedPartitions) -> None:
    request.authorize(key.topic)
    if key in requested.repeated:
        raise BrokerError(ErrorCode.invalid_request, "the partition occurs more than once in the request")


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < EARLIEST_PENDING_UPLOAD or version < _FIRST_VERSIONS.get(timestamp, 0):
        raise BrokerError(ErrorCode.unsupported_version, f"timestamp {timestamp} is not defined in version {version}")


def _response(request: Request, topics: Mapping[str, list[Any]]) -> Any:
    results = [{"name": name, "partitions": tuple(partitions)} for name, partitions in topics.items()]
    return build_response(request, topics=results)


async def _list_segments(
    request: Request, broker: Broker, requested: _RequestedPartitions, time_slice: TimeSlice
) -> Any:
    topics: dict[str, list[Any]] = {}
    async for key, partition in time_slice.spread(requested.partitions.items()):
        try:
            _check(request, key, requested)
            offsets = await _segment_offsets(broker, broker.log(*key), partition.timestamp, partition.max_num_offsets)
            fields: dict[str, Any] = {"old_style_offsets": offsets}
        except BrokerError as error:
            is_offline = error.code is ErrorCode.kafka_storage_error  # unknown to these clients
            fields = {"error_code": ErrorCode.not_leader_or_follower if is_offline else error.code}
        topics.setdefault(key.topic, []).append({"partition_index": key.partition, **fields})
    return _response(request, topics)


async def _segment_offsets(broker: Broker, log: Log, timestamp: int, max_offsets: int) -> list[int]:
    log.check_fetch_offset(log.log_start_offset)  # raises BrokerError if the log is offline
    if max_offsets < 0:
        raise BrokerError(ErrorCode.unknown_server_error, f"max_num_offsets is {max_offsets}, expected 0 or more")

    def start_offsets(*, with_times: bool) -> list[OffsetAndTime]:
        return segment_start_offsets(
            log.segments, log.log_start_offset, log.log_end_offset, broker.clock.now_ms(), with_times=with_times
        )

    if timestamp in (LATEST, EARLIEST):
        segments = start_offsets(with_times=False)
    else:
        try:
            segments = await broker.run_blocking(start_offsets, with_times=True)
        except OSError as error:
            raise BrokerError(ErrorCode.kafka_storage_error, f"segments cannot be read: {error}") from error
    return offsets_before(segments, timestamp, max_offsets, log.high_watermark)
