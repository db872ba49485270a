"""9 OffsetFetch, versions 0 to 10: the committed offsets of groups; -1 for a partition without one.

v0   was read from ZooKeeper by old brokers; here it differs from v1 only in the error for a partition without a
     committed offset, UNKNOWN_TOPIC_OR_PARTITION
v2   null stands for all topics of the group; an error of the whole request
v5   leader epoch (KIP-320)
v7   require_stable: partitions with an offset in an open transaction get UNSTABLE_OFFSET_COMMIT (KIP-447)
v8   several groups (KIP-709)
v9   member ID and epoch for members of consumer groups (KIP-848): STALE_MEMBER_EPOCH
v10  topics by ID: UNKNOWN_TOPIC_ID; in a response to a null list, topics that no longer exist are left out

If a request names the same partition of a group more than once, or all topics of a group more than once, the response
has it once. So the committed offsets and the requested partitions bound the size of a response.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_requests import NO_GENERATION
from kafkalog_broker.groups.offset_requests import NO_OFFSET
from kafkalog_broker.groups.offset_store import CommittedOffset
from kafkalog_broker.groups.offset_validation import check_fetch
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.parts import in_parts

PARTITIONS_PER_STEP = 500
"""Partitions that are looked up, in about 1 ms, before the time slice is checked."""

_FIRST_VERSION_WITH_GROUP_ERROR = 2
_FIRST_VERSION_WITH_SEVERAL_GROUPS = 8
_FIRST_VERSION_WITH_TOPIC_IDS = 10

TopicKey = str | UUID | None
"""A topic as the request identifies it: by name or by ID. None stands for the zero ID."""

Partitions = dict[TopicKey, dict[int, None]]
"""Partitions by topic, each once, in the order of their first occurrence."""


class TopicOffsets(NamedTuple):
    """Offsets of one topic. Fields have the names of the protocol."""

    name: str
    topic_id: UUID | None
    partitions: list[CommittedOffset]


class GroupOffsets(NamedTuple):
    """Offsets of one group. Fields have the names of the protocol.

    With an `error_code` there are no topics. Before version 2 each partition has the error instead.
    """

    group_id: str
    topics: list[TopicOffsets]
    error_code: int = 0


class OffsetFetchResponse(NamedTuple):
    """A whole response. Fields have the names of the protocol.

    Versions up to 7 write `topics` and `error_code`, which are those of the only group, later ones write `groups`.
    """

    groups: list[GroupOffsets]
    topics: list[TopicOffsets]
    error_code: int
    throttle_time: int = 0


@api(9, 0, 10)
async def offset_fetch(request: Request, broker: Broker) -> OffsetFetchResponse:
    time_slice = TimeSlice()
    return _response([await _fetch_group(request, broker, group, time_slice) for group in _groups(request)])


@on_error(9)
def offset_fetch_error(request: Request, code: ErrorCode) -> OffsetFetchResponse:
    return _response([_group_error(request, group, code) for group in _groups(request)])


def _response(groups: list[GroupOffsets]) -> OffsetFetchResponse:
    only = groups[0] if groups else GroupOffsets("", [])
    return OffsetFetchResponse(groups, only.topics, only.error_code)


def _groups(request: Request) -> list[Any]:
    """Return the group structs of a request. A group of which all topics are requested is returned once."""
    if request.version < _FIRST_VERSION_WITH_SEVERAL_GROUPS:
        return [request.entity]  # it has the fields of a group struct, except the member
    numbered = enumerate(request.entity.groups)
    once = {(group.group_id, None if group.topics is None else number): group for number, group in numbered}
    return list(once.values())


async def _fetch_group(request: Request, broker: Broker, group: Any, time_slice: TimeSlice) -> GroupOffsets:
    """Return the offsets of a group: first the topics that the sender may describe, then the others with an error."""
    by_id = request.version >= _FIRST_VERSION_WITH_TOPIC_IDS
    all_topics = group.topics is None
    results: list[TopicOffsets] = []
    denied: list[TopicOffsets] = []
    try:
        request.authorize(group.group_id)
        _check_member(broker, group)
        partitions = _committed_partitions(broker, group.group_id) if all_topics else _partitions(group.topics, by_id)
        for key, indexes in partitions.items():
            topic = _resolve(broker, key)
            if topic.name is not None and not request.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
                denied.append(_denied_offsets(key, indexes))
                continue
            if topic.exists or not by_id:
                # As in Kafka, a null list also includes offsets of a deleted topic with the same name.
                topic_id = None if all_topics else topic.topic_id
                offsets_of = partial(_fetch_offsets, request, broker, group.group_id, topic.name or "", topic_id)
            elif not all_topics:
                offsets_of = partial(_errors, ErrorCode.unknown_topic_id)
            else:
                continue  # a deleted topic has no ID, so a response with IDs cannot include it
            offsets: list[CommittedOffset] = []
            async for step in time_slice.spread(in_parts(indexes, PARTITIONS_PER_STEP)):
                offsets += offsets_of(step)
            results.append(TopicOffsets(topic.name or "", topic.topic_id, offsets))
    except BrokerError as error:
        return _group_error(request, group, error.code)
    return GroupOffsets(group.group_id, results if all_topics else results + denied)


def _check_member(broker: Broker, group: Any) -> None:
    """Raise BrokerError for a stale member of a consumer group. Members of classic groups are not checked."""
    modern_group = broker.groups.shard(group.group_id).consumer_or_streams_group(group.group_id)
    if modern_group is not None:
        member_id, member_epoch = getattr(group, "member_id", None), getattr(group, "member_epoch", NO_GENERATION)
        check_fetch(modern_group, member_id, member_epoch)


def _committed_partitions(broker: Broker, group_id: str) -> Partitions:
    committed = broker.groups.shard(group_id).offsets.of_group(group_id)
    return {topic: dict.fromkeys(offsets) for topic, offsets in committed.items()}


def _partitions(topics: Sequence[Any], by_id: bool) -> Partitions:
    """Return the partitions of the topic structs of a request."""
    partitions: Partitions = {}
    for topic in topics:
        key = topic.topic_id if by_id else topic.name
        partitions.setdefault(key, {}).update(dict.fromkeys(topic.partition_indexes))
    return partitions


class _ResolvedTopic(NamedTuple):
    """A requested topic. It has no name if its ID is unknown, and no ID if its name is unknown."""

    name: str | None
    topic_id: UUID | None
    exists: bool


def _resolve(broker: Broker, key: TopicKey) -> _ResolvedTopic:
    if isinstance(key, str):
        topic = broker.topics.get(key)
        return _ResolvedTopic(key, None if topic is None else topic.id, topic is not None)
    topic = broker.topics.by_id(key) if key else None
    return _ResolvedTopic(None if topic is None else topic.name, key, topic is not None)


def _denied_offsets(key: TopicKey, partitions: Iterable[int]) -> TopicOffsets:
    """Return the error for a topic as the request identifies it, without disclosing the name of a topic by ID."""
    name, topic_id = (key, None) if isinstance(key, str) else ("", key)
    return TopicOffsets(name, topic_id, _errors(ErrorCode.topic_authorization_failed, partitions))


def _fetch_offsets(
    request: Request, broker: Broker, group_id: str, topic: str, topic_id: UUID | None, partitions: Sequence[int]
) -> list[CommittedOffset]:
    """Return the committed offsets of partitions, only those that were committed to `topic_id` unless it is None."""
    require_stable = request.entity.require_stable
    group_offsets = broker.groups.shard(group_id).offsets
    offsets = group_offsets.fetch(group_id, topic, partitions, topic_id, require_stable=require_stable)
    if request.version > 0:
        return offsets
    # Version 0 has the error of brokers with ZooKeeper, which had no node for a partition without a committed offset.
    return [
        offset._replace(error_code=ErrorCode.unknown_topic_or_partition)
        if offset.committed_offset == NO_OFFSET and offset.error_code == ErrorCode.none
        else offset
        for offset in offsets
    ]


def _group_error(request: Request, group: Any, code: ErrorCode) -> GroupOffsets:
    if request.version >= _FIRST_VERSION_WITH_GROUP_ERROR:
        return GroupOffsets(group.group_id, [], code)
    partitions = _partitions(group.topics, by_id=False)
    topics = [TopicOffsets(str(name), None, _errors(code, indexes)) for name, indexes in partitions.items()]
    return GroupOffsets(group.group_id, topics)


def _errors(code: ErrorCode, partitions: Iterable[int]) -> list[CommittedOffset]:
    return [CommittedOffset(index, error_code=code) for index in partitions]
