"""Offsets by time, and by leader epoch.

2 ListOffsets, versions 0 to 11: the offset for a timestamp, or for one of the special ones. Version 0 answers with a
list, as the protocol guides describe it: the starts of the segments that were written by then
(`storage/partition/offset_lookup.py`), and the end of the log for -1. In version 1 a look-up by time in a log whose
newest messages have no timestamps, format v0, is UNSUPPORTED_FOR_MESSAGE_FORMAT.

-1 latest               high watermark; the LSO with read_committed
-2 earliest             log start offset
-3 max timestamp        v7 (KIP-734)
-4 earliest local       v8: where the log on disk begins
-5 latest tiered        v9: the last offset in remote storage; none where nothing is
-6 earliest pending     v11: the first offset that is not in remote storage; none of topics without it, and where no
                        record that the client may read is waiting (Partition.fetchOffsetForTimestamp)

A partition that is named more than once is answered once, with INVALID_REQUEST, as by Kafka. What reads the log (times,
and -3) is done in a thread. A look-up in remote storage ends with REQUEST_TIMED_OUT after the timeout of the request
(v10), or remote.list.offsets.request.timeout.ms.

23 OffsetForLeaderEpoch, versions 2 to 4: where a leader epoch ended, so that clients notice a log that was cut. The
replica id of followers (v3) is of no meaning on one node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog_broker.admin.responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.fetch_read import READ_COMMITTED
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.partition.file_handles import FileSlice
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.offset_lookup import EARLIEST, LATEST, MAX_TIMESTAMP
from kafkalog_broker.storage.partition.segment_start_offsets import Place, listed_offsets, segment_places
from kafkalog_spark.format import layout

if TYPE_CHECKING:
    from kafkalog_broker.remote.remote_log_manager import RemoteLogManager  # which others do without

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
Found = tuple[int, int, int]  # timestamp, offset, leader epoch
Answer = tuple[ErrorCode, Found]
Key = tuple[str, int]  # topic, partition
_NONE: Found = (-1, -1, -1)
AT_ONCE_S = 0.005  # how long look-ups of one request keep a thread before those of others have theirs


@api(2, 0, 11)
async def list_offsets(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, TimeSlice()
    committed = getattr(asked, "isolation_level", 0) == READ_COMMITTED
    wanted: dict[Key, Any] = {}
    twice = set()
    for name, partition in ((topic.name, one) for topic in asked.topics for one in topic.partitions):
        key = (name, partition.partition_index)
        if key in wanted:
            twice.add(key)
        wanted[key] = partition
    if request.version == 0:
        return await _list_segments(request, broker, wanted, twice, turn)
    answers: dict[Key, Answer] = {}
    by_time: list[tuple[Key, ByTime]] = []
    async for key, partition in turn.spread(wanted.items()):
        try:
            _check(request, key, twice)
            log = broker.log(*key)
            log.check_leader_epoch(getattr(partition, "current_leader_epoch", -1))
            found = look_up(log, partition.timestamp, request.version, committed=committed)
            if isinstance(found, ByTime):
                by_time.append((key, found))
            else:
                answers[key] = ErrorCode.none, found
        except BrokerError as error:
            answers[key] = error.code, _NONE
    if broker.remote is not None:
        tiered = [(key, question) for key, question in by_time if question.is_remote]
        by_time = [(key, question) for key, question in by_time if not question.is_remote]
        timeout_ms = round(asked.timeout.total_seconds() * 1000) if hasattr(asked, "timeout") else 0
        found_remotely = await asyncio.gather(
            *(_search_remotely(broker.remote, question, timeout_ms) for _, question in tiered)
        )
        answers.update(zip((key for key, _ in tiered), found_remotely, strict=True))
    while by_time:
        for key, answer in await broker.run_computing(_search, by_time):
            answers[key] = answer
    struct = response_module(request).ListOffsetsPartitionResponse
    topics: dict[str, list[Any]] = {}
    async for name, index in turn.spread(wanted):  # 2 us each: of 20,000 partitions others would wait for 40 ms
        code, (timestamp, offset, epoch) = answers[name, index]
        fields = {"error_code": code, "timestamp": timestamp, "offset": offset, "leader_epoch": epoch}
        topics.setdefault(name, []).append(entity(struct, partition_index=index, **fields))
    return _by_topic(request, topics)


async def _list_segments(
    request: Request, broker: Broker, wanted: Mapping[Key, Any], twice: Collection[Key], turn: TimeSlice
) -> Any:
    topics: dict[str, list[Any]] = {}
    async for key, partition in turn.spread(wanted.items()):
        try:
            _check(request, key, twice)
            offsets = await _segment_starts(broker, broker.log(*key), partition.timestamp, partition.max_num_offsets)
            answer: dict[str, Any] = {"old_style_offsets": offsets}
        except BrokerError as error:
            offline = error.code is ErrorCode.kafka_storage_error  # which these clients do not know
            answer = {"error_code": ErrorCode.not_leader_or_follower if offline else error.code}
        topics.setdefault(key[0], []).append({"partition_index": key[1], **answer})
    return _by_topic(request, topics)


def _check(request: Request, key: Key, twice: Collection[Key]) -> None:
    request.check(key[0])
    if key in twice:
        raise BrokerError(ErrorCode.invalid_request, "the partition is asked for more than once")


async def _segment_starts(broker: Broker, log: Log, timestamp: int, most: int) -> list[int]:
    log.check_fetch_offset(log.log_start_offset)  # whether it is online
    if most < 0:
        raise BrokerError(ErrorCode.unknown_server_error, f"at most {most} offsets are asked for")

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
            raise BrokerError(ErrorCode.kafka_storage_error, f"segments cannot be looked at: {error}") from error
    return listed_offsets(found, timestamp, most, log.high_watermark)


def _by_topic(request: Request, topics: Mapping[str, list[Any]]) -> Any:
    return respond(request, topics=[{"name": name, "partitions": tuple(answers)} for name, answers in topics.items()])


class ByTime(NamedTuple):
    """A look-up that reads and decompresses. end: what lies there or above is not shown."""

    log: Log
    timestamp: int
    end: int
    version: int

    @property
    def is_remote(self) -> bool:
        """True if remote segments have to be looked at. The largest timestamp is that of the local log, as in Kafka."""
        return self.timestamp != MAX_TIMESTAMP and self.log.local_log_start_offset > self.log.log_start_offset

    def search(self) -> Found:
        """Blocks. Raises BrokerError."""
        log = self.log
        if self.version == 1 and _has_no_times(log):
            why = f"the newest messages of {log.name} are of format v0"
            raise BrokerError(ErrorCode.unsupported_for_message_format, why)
        is_max = self.timestamp == MAX_TIMESTAMP
        return self.shown(log.max_timestamp_offset() if is_max else log.offset_for_timestamp(self.timestamp))

    def shown(self, found: Found | None) -> Found:
        """Part of it that the client may see."""
        return found if found is not None and found[1] < self.end else _NONE


async def _search_remotely(remote: RemoteLogManager, question: ByTime, timeout_ms: int) -> Answer:
    try:
        found = await remote.reads.offset_for_timestamp(question.log, question.timestamp, timeout_ms)
    except BrokerError as error:
        return error.code, _NONE
    return ErrorCode.none, question.shown(found)


def _earliest_pending_upload(log: Log) -> int:
    if not log.config.remote_storage_enable:
        return -1
    highest = log.highest_offset_in_remote_storage
    if highest < 0:  # or what was copied is not known yet
        return log.log_start_offset if log.local_log_start_offset == log.log_start_offset else -1
    return max(highest + 1, log.log_start_offset)


_OFFSETS: Mapping[int, Callable[[Log], int]] = {
    EARLIEST: lambda log: log.log_start_offset,
    EARLIEST_LOCAL: lambda log: log.local_log_start_offset,
    LATEST_TIERED: lambda log: log.highest_offset_in_remote_storage if log.config.remote_storage_enable else -1,
    EARLIEST_PENDING_UPLOAD: _earliest_pending_upload,
}
"""Offsets that stand for timestamps below zero and that nothing has to be read for; -1: there is none such."""


def look_up(log: Log, timestamp: int, version: int, *, committed: bool) -> Found | ByTime:
    """(timestamp, offset, leader epoch) that answer `timestamp`, -1 stands for none; what is left to do where that
    takes reading. Raises BrokerError (UNSUPPORTED_VERSION)."""
    if timestamp < EARLIEST_PENDING_UPLOAD or version < _FIRST_VERSION.get(timestamp, 0):
        raise BrokerError(ErrorCode.unsupported_version, f"timestamp {timestamp} is not known to version {version}")
    end = log.last_stable_offset if committed else log.high_watermark
    if timestamp in _OFFSETS:
        offset = _OFFSETS[timestamp](log)
        if timestamp == EARLIEST_PENDING_UPLOAD and offset >= end:
            return _NONE
        return -1, offset, log.epochs.epoch_of(offset)
    if timestamp == LATEST:
        return -1, end, log.leader_epoch
    return ByTime(log, timestamp, end, version)


def _has_no_times(log: Log) -> bool:
    """True if the newest segment with messages begins with one of format v0. Raises BrokerError."""
    newest = next((segment for segment in reversed(log.segments) if segment.size), None)
    if newest is None:
        return False
    magic = log.read_slice(FileSlice(newest.handle(), layout.MAGIC_AT, 1))
    return magic == b"\0"


def _search(left: list[tuple[Key, ByTime]]) -> list[tuple[Key, Answer]]:
    """In a thread: answer look-ups off the end of `left`, at least one, until AT_ONCE_S are over."""
    answers: list[tuple[Key, Answer]] = []
    end = perf_counter() + AT_ONCE_S
    while left and (not answers or perf_counter() < end):
        key, question = left.pop()
        try:
            answers.append((key, (ErrorCode.none, question.search())))
        except BrokerError as error:
            answers.append((key, (error.code, _NONE)))
    return answers


@api(23, 2, 4)
async def offset_for_leader_epoch(request: Request, broker: Broker) -> Any:
    def answer(topic: Any, partition: Any) -> dict[str, Any]:
        request.check(topic.topic)
        log = broker.log(topic.topic, partition.partition)
        log.check_leader_epoch(partition.current_leader_epoch)
        epoch, end = log.end_offset_for_epoch(partition.leader_epoch)
        return {"leader_epoch": epoch, "end_offset": end}

    return await respond_by_partition(request, answer)
