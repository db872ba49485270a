"""2 ListOffsets, versions 1 to 11: the offset for a timestamp, or for one of the special ones.

-1 latest               high watermark; the LSO with read_committed
-2 earliest             log start offset
-3 max timestamp        v7 (KIP-734)
-4 earliest local       v8: the log start offset, nothing lies elsewhere
-5 latest tiered        v9: none
-6 earliest pending     v11: none, nothing waits to be uploaded

A partition that is named more than once is answered once, with INVALID_REQUEST, as by Kafka. What reads the log (times,
and -3) is done in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.fetch_read import READ_COMMITTED
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.storage.partition.log_time import MAX_TIMESTAMP
from kafkalog_broker.turn import Turn

if TYPE_CHECKING:
    from kafkalog_broker.broker import Broker
    from kafkalog_broker.storage.partition.log import Log

LATEST, EARLIEST = -1, -2
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_LEADER_EPOCH_FROM = 4
Found = tuple[int, int, int]
"""timestamp, offset, leader epoch"""
Answer = tuple[ErrorCode, Found]
Key = tuple[str, int]
"""topic, partition"""
_NONE: Found = (-1, -1, -1)
AT_ONCE_S = 0.005
"""How long look-ups of one request keep a thread before those of others have theirs."""


@api(2, 1, 11)
async def handle(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, Turn()
    committed = getattr(asked, "isolation_level", 0) == READ_COMMITTED
    wanted: dict[Key, Any] = {}
    twice = set()
    for topic in asked.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            if key in wanted:
                twice.add(key)
            wanted[key] = partition
            if turn.over:
                await turn.next()
    answers: dict[Key, Answer] = {}
    by_time: list[tuple[Key, ByTime]] = []
    for key, partition in wanted.items():
        if turn.over:
            await turn.next()
        try:
            if key in twice:
                raise BrokerError(ErrorCode.invalid_request, "the partition is asked for more than once")
            log = broker.log(*key)
            log.reader.check_leader_epoch(getattr(partition, "current_leader_epoch", -1))
            found = look_up(log, partition.timestamp, request.version, committed=committed)
            if isinstance(found, ByTime):
                by_time.append((key, found))
            else:
                answers[key] = ErrorCode.none, found
        except BrokerError as error:
            answers[key] = error.code, _NONE
    while by_time:
        for key, answer in await broker.run_computing(_search, by_time):
            answers[key] = answer
    return await _response(request, wanted, answers, turn)


async def _response(request: Request, keys: Iterable[Key], answers: Mapping[Any, Answer], turn: Turn) -> Any:
    """Each partition once; topics in the order of their first mention."""
    module = response_module(request)
    answered, has_epoch = module.ListOffsetsPartitionResponse, request.version >= _LEADER_EPOCH_FROM
    topics: dict[str, list[Any]] = {}
    for key in keys:
        if turn.over:
            await turn.next()
        code, (timestamp, offset, epoch) = answers[key]
        name, index = key
        told = {"partition_index": index, "error_code": code, "timestamp": timestamp, "offset": offset}
        if has_epoch:
            told["leader_epoch"] = epoch
        topics.setdefault(name, []).append(answered(**told))
    return entity(
        module.ListOffsetsResponse,
        topics=tuple(
            entity(module.ListOffsetsTopicResponse, name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )


class ByTime(NamedTuple):
    """A look-up that reads and decompresses. end: what lies there or above is not shown."""

    log: Log
    timestamp: int
    end: int

    def search(self) -> Found:
        """Blocks. Raises BrokerError."""
        log = self.log
        found = (
            log.reader.max_timestamp_offset()
            if self.timestamp == MAX_TIMESTAMP
            else log.reader.offset_for_timestamp(self.timestamp)
        )
        return found if found is not None and found[1] < self.end else _NONE


def look_up(log: Log, timestamp: int, version: int, *, committed: bool) -> Found | ByTime:
    """(timestamp, offset, leader epoch) that answer `timestamp`, -1 stands for none; what is left to do where that
    takes reading. Raises BrokerError (UNSUPPORTED_VERSION)."""
    if timestamp < EARLIEST_PENDING_UPLOAD or version < _FIRST_VERSION.get(timestamp, 0):
        raise BrokerError(ErrorCode.unsupported_version, f"timestamp {timestamp} is not known to version {version}")
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, log.reader.epoch_of(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NONE
    end = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST:
        return -1, end, log.leader_epoch
    return ByTime(log, timestamp, end)


def _search(left: list[tuple[Key, ByTime]]) -> list[tuple[Key, Answer]]:
    """In a thread: take look-ups off the end of `left` until AT_ONCE_S are over, at least one. Then another request
    has its turn there."""
    answers: list[tuple[Key, Answer]] = []
    end = perf_counter() + AT_ONCE_S
    while left and (not answers or perf_counter() < end):
        key, question = left.pop()
        try:
            answers.append((key, (ErrorCode.none, question.search())))
        except BrokerError as error:
            answers.append((key, (error.code, _NONE)))
    return answers
