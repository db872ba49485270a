"""9 OffsetFetch, versions 0 to 10: how far groups have read; offset -1 where nothing is committed.

v0   read from ZooKeeper once; the same as v1 on the wire, but where nothing is committed UNKNOWN_TOPIC_OR_PARTITION
v2   all topics of the group when topics is null; an error of the request as a whole
v5   leader epoch (KIP-320)
v7   require_stable: offsets in an open transaction are UNSTABLE_OFFSET_COMMIT (KIP-447)
v8   several groups (KIP-709)
v9   member id and epoch, of members of consumer groups (KIP-848): STALE_MEMBER_EPOCH
v10  topics by id: UNKNOWN_TOPIC_ID; of a null list, topics that do not exist any more are left out

What a request names more than once, a group without topics or a partition of a group, is answered once: an answer is
never larger than what is committed and what was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.messages import NO_OFFSET
from kafkalog_broker.groups.offset_store import CommittedOffset
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, in_parts

AT_ONCE = 500  # partitions that are looked up before others may have their turn: about 1 ms

FIRST_VERSION_WITH_ERROR = 2
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10


class TopicOffsets(NamedTuple):
    name: str
    topic_id: UUID | None
    partitions: list[CommittedOffset]


class GroupOffsets(NamedTuple):
    """Answer for a group. error_code: then there are no topics; before version 2 an error for each partition."""

    group_id: str
    topics: list[TopicOffsets]
    error_code: int = 0


class OffsetFetchResponse(NamedTuple):
    """Up to version 7 of one group, `topics` and `error_code`."""

    groups: list[GroupOffsets]
    topics: list[TopicOffsets]
    error_code: int
    throttle_time: int = 0


Wanted: TypeAlias = "dict[str | UUID | None, dict[int, None]]"
"""Partitions by topic, each once, in the order in which they come first."""


@api(9, 0, 10)
async def handle(request: Request, broker: Broker) -> OffsetFetchResponse:
    asked, turn = request.entity, TimeSlice()
    stable = getattr(asked, "require_stable", False)
    return _response([await _fetch(request, broker, group, stable, turn) for group in _groups(request)])


@on_error(9)
def failed(request: Request, code: ErrorCode) -> OffsetFetchResponse:
    return _response([_failed_group(request, group, code) for group in _groups(request)])


def _response(groups: list[GroupOffsets]) -> OffsetFetchResponse:
    _, topics, code = groups[0] if groups else GroupOffsets("", [])
    return OffsetFetchResponse(groups, topics, code)


def _groups(request: Request) -> list[Any]:
    """A group of which everything is asked for comes once."""
    if request.version < FIRST_VERSION_WITH_GROUPS:
        return [request.entity]
    numbered = enumerate(request.entity.groups)
    once = {(group.group_id, None if group.topics is None else number): group for number, group in numbered}
    return list(once.values())


async def _fetch(request: Request, broker: Broker, asked: Any, require_stable: bool, turn: TimeSlice) -> GroupOffsets:
    by_id = request.version >= FIRST_VERSION_WITH_TOPIC_IDS
    group_id, answers, refused = asked.group_id, [], []
    try:
        request.check(group_id)
        shard = broker.groups.shard(group_id)
        group = shard.reconciling(group_id)
        if group is not None:  # members of classic groups always may
            group.check_fetch(getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1))
        if asked.topics is None:
            wanted: Wanted = {
                topic: dict.fromkeys(offsets) for topic, offsets in shard.offsets.of_group(group_id).items()
            }
        else:
            wanted = _wanted(asked.topics, by_id=by_id)
        for key, indexes in wanted.items():
            asked_id = None if isinstance(key, str) else key
            topic = broker.topics.get(key) if isinstance(key, str) else broker.topics.by_id(key) if key else None
            name = key if isinstance(key, str) else "" if topic is None else topic.name
            is_known = isinstance(key, str) or topic is not None
            if is_known and not request.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
                offsets = _without_offset(indexes, ErrorCode.topic_authorization_failed)
                refused.append(TopicOffsets(name if asked_id is None else "", asked_id, offsets))
                continue
            if topic is None and by_id and asked.topics is None:
                continue
            topic_id, offsets = asked_id if topic is None else topic.id, []
            answers.append(TopicOffsets(name, topic_id, offsets))
            async for some in turn.spread(in_parts(indexes, AT_ONCE)):
                if topic is None and by_id:
                    offsets += _without_offset(some, ErrorCode.unknown_topic_id)
                else:
                    # Of everything, Kafka gives also what was committed to a topic of that name before this one.
                    its_id = topic_id if asked.topics is not None else None
                    fetched = broker.groups.shard(group_id).offsets.fetch(
                        group_id, name, some, its_id, require_stable=require_stable
                    )
                    offsets += _or_unknown(fetched) if request.version == 0 else fetched
        return GroupOffsets(group_id, answers if asked.topics is None else answers + refused)
    except BrokerError as error:
        return _failed_group(request, asked, error.code)


def _wanted(topics: Sequence[Any], *, by_id: bool) -> Wanted:
    wanted: Wanted = {}
    for topic in topics:
        wanted.setdefault(topic.topic_id if by_id else topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return wanted


def _without_offset(partitions: Iterable[int], code: ErrorCode) -> list[CommittedOffset]:
    return [CommittedOffset(index, error_code=code) for index in partitions]


def _or_unknown(offsets: Iterable[CommittedOffset]) -> Iterable[CommittedOffset]:
    """Error of brokers with ZooKeeper, which had no node for it."""
    for one in offsets:
        nothing = one.committed_offset == NO_OFFSET and one.error_code == ErrorCode.none
        yield one._replace(error_code=ErrorCode.unknown_topic_or_partition) if nothing else one


def _failed_group(request: Request, asked: Any, code: ErrorCode) -> GroupOffsets:
    if request.version >= FIRST_VERSION_WITH_ERROR:
        return GroupOffsets(asked.group_id, [], code)
    wanted = _wanted(asked.topics, by_id=False)
    topics = [TopicOffsets(str(name), None, _without_offset(indexes, code)) for name, indexes in wanted.items()]
    return GroupOffsets(asked.group_id, topics)
