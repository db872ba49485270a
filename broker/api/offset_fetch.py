"""9 OffsetFetch, versions 1 to 10: how far groups have read; offset -1 where nothing is committed.

v2   all topics of the group when topics is null; an error of the request as a whole
v5   leader epoch (KIP-320)
v7   require_stable: offsets in an open transaction are UNSTABLE_OFFSET_COMMIT (KIP-447)
v8   several groups (KIP-709)
v9   member id and epoch, which mean nothing to classic groups
v10  topics by id: UNKNOWN_TOPIC_ID; of a null list, topics that do not exist any more are left out
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from broker.errors import BrokerError, ErrorCode
from broker.groups.messages import FetchedOffset, FetchedTopic
from broker.groups.rebalance import write_error
from broker.protocol.api_registry import Request, api, on_error
from broker.protocol.response_entity import entity, response_module

if TYPE_CHECKING:
    from broker.server import Broker
    from broker.storage.topic_registry import Topic

_TOP_LEVEL_ERROR_FROM = 2
_SEVERAL_GROUPS_FROM = 8
_TOPIC_IDS_FROM = 10


class _Topic(NamedTuple):
    name: str
    id: UUID | None
    partitions: Iterable[FetchedOffset]


class _Group(NamedTuple):
    group_id: str
    topics: list[_Topic]
    error: ErrorCode = ErrorCode.none


@api(9, 1, 10)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    stable = getattr(asked, "require_stable", False)
    groups = asked.groups if request.version >= _SEVERAL_GROUPS_FROM else [asked]
    return _answer(request, [_fetch(request, broker, group, stable) for group in groups])


def _fetch(request: Request, broker: Broker, asked: Any, require_stable: bool) -> _Group:
    by_id = request.version >= _TOPIC_IDS_FROM
    try:
        if asked.topics is None:
            topics = []
            for name, offsets in broker.groups.fetch(asked.group_id, None, require_stable=require_stable):
                topic = broker.topics.get(name)
                if topic is not None or not by_id:
                    topics.append(_Topic(name, _id(topic), offsets))
            return _Group(asked.group_id, topics)
        found = []
        for wanted in asked.topics:
            if by_id:
                topic = None if wanted.topic_id is None else broker.topics.by_id(wanted.topic_id)
            else:
                topic = broker.topics.get(wanted.name)
            if topic is None and by_id:
                unknown = (FetchedOffset(index, error=ErrorCode.unknown_topic_id) for index in wanted.partition_indexes)
                found.append(_Topic("", wanted.topic_id, unknown))
                continue
            name = wanted.name if topic is None else topic.name
            one = FetchedTopic(name, tuple(wanted.partition_indexes), _id(topic))
            ((_, offsets),) = broker.groups.fetch(asked.group_id, [one], require_stable=require_stable)
            found.append(_Topic(name, _id(topic), offsets))
        return _Group(asked.group_id, found)
    except BrokerError as error:
        return _failed_group(request, asked, write_error(error.code))


def _id(topic: Topic | None) -> UUID | None:
    return None if topic is None else topic.id


def _failed_group(request: Request, asked: Any, code: ErrorCode) -> _Group:
    if request.version >= _TOP_LEVEL_ERROR_FROM:
        return _Group(asked.group_id, [], code)
    topics = [
        _Topic(topic.name, None, [FetchedOffset(index, error=code) for index in topic.partition_indexes])
        for topic in asked.topics
    ]
    return _Group(asked.group_id, topics)


@on_error(9)
def failed(request: Request, code: ErrorCode) -> Any:
    asked = request.entity
    groups = asked.groups if request.version >= _SEVERAL_GROUPS_FROM else [asked]
    return _answer(request, [_failed_group(request, group, code) for group in groups])


def _answer(request: Request, groups: list[_Group]) -> Any:
    module = response_module(request)
    if request.version >= _SEVERAL_GROUPS_FROM:
        topic_type, partition_type = module.OffsetFetchResponseTopics, module.OffsetFetchResponsePartitions
    else:
        topic_type, partition_type = module.OffsetFetchResponseTopic, module.OffsetFetchResponsePartition

    def topics(group: _Group) -> tuple[Any, ...]:
        return tuple(
            entity(
                topic_type,
                name=topic.name,
                topic_id=topic.id,
                partitions=tuple(
                    entity(
                        partition_type,
                        partition_index=found.partition,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=found.error,
                    )
                    for found in topic.partitions
                ),
            )
            for topic in group.topics
        )

    if request.version >= _SEVERAL_GROUPS_FROM:
        answers = tuple(
            entity(
                module.OffsetFetchResponseGroup, group_id=group.group_id, topics=topics(group), error_code=group.error
            )
            for group in groups
        )
        return entity(module.OffsetFetchResponse, groups=answers)
    (only,) = groups
    return entity(module.OffsetFetchResponse, topics=topics(only), error_code=only.error)
