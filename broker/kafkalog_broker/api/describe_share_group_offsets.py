"""90 DescribeShareGroupOffsets, versions 0 and 1: where share groups are in their partitions (KIP-932).

v1  lag (KIP-1226)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.runtime.turn import Turn
from kafkalog_broker.share.state.state_records import NO_START_OFFSET, NOT_COUNTED, SharePartitionKey
from kafkalog_broker.share.state.state_shard import Summary

_NO_LAG = -1
_TOPIC_REFUSED = "Topic authorization failed."


@api(90, 0, 1)
async def handle(request: Request, broker: Broker) -> Any:
    turn, groups = Turn(), []
    async for group in turn.spread(request.entity.groups):
        code = request.refused(group.group_id)
        if code is not ErrorCode.none:
            groups.append(_group(request, group.group_id, (), code))
            continue
        try:
            groups.append(_group(request, group.group_id, await _topics(request, broker, group, turn)))
        except BrokerError as error:
            groups.append(_group(request, group.group_id, (), error.code, error.what))
    return entity(response_module(request).DescribeShareGroupOffsetsResponse, groups=tuple(groups))


async def _topics(request: Request, broker: Broker, group: Any, turn: Turn) -> tuple[Any, ...]:
    """Raises BrokerError."""
    described: list[Any] = []
    unknown: list[Any] = []
    refused: list[Any] = []
    asked: list[tuple[str, UUID | None, Iterable[int]]] = []
    if group.topics is None:
        shard = broker.share_groups.shard(group.group_id)
        found = shard.groups.get(group.group_id)
        initialized = {} if found is None or found.state is None else found.state.initialized
        for topic_id, info in initialized.items():
            known = broker.topics.by_id(topic_id)
            if known is not None and request.may(Operation.DESCRIBE, ResourceType.TOPIC, known.name):
                asked.append((known.name, topic_id, info.partitions))
    else:
        for topic in group.topics:
            if request.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic_name):
                known = broker.topics.get(topic.topic_name)
                asked.append((topic.topic_name, None if known is None else known.id, topic.partitions))
            else:
                refused.append(_refused(request, topic))
    for name, asked_id, partitions in asked:
        answers = []
        async for index in turn.spread(partitions):
            answers.append(_partition(request, broker, group.group_id, name, asked_id, index))
        (unknown if asked_id is None else described).append(_topic(request, name, asked_id, answers))
    return (*described, *unknown, *refused)


def _partition(request: Request, broker: Broker, group_id: str, topic: str, topic_id: UUID | None, index: int) -> Any:
    summary, lag = Summary(), _NO_LAG
    try:
        if topic_id is not None:
            summary = broker.share_coordinator.summary(SharePartitionKey(group_id, topic_id, index))
        if summary.start_offset != NO_START_OFFSET and summary.delivery_complete_count != NOT_COUNTED:
            end = broker.log(topic, index).high_watermark
            lag = end - summary.start_offset - summary.delivery_complete_count
    except BrokerError:
        summary, lag = Summary(), _NO_LAG  # as Kafka: as if nothing had been delivered
    return entity(
        response_module(request).DescribeShareGroupOffsetsResponsePartition, partition_index=index,
        start_offset=summary.start_offset, leader_epoch=summary.leader_epoch, lag=lag, error_code=ErrorCode.none,
    )  # fmt: skip


def _refused(request: Request, topic: Any) -> Any:
    kind = response_module(request).DescribeShareGroupOffsetsResponsePartition
    partitions = [
        entity(
            kind, partition_index=index, start_offset=NO_START_OFFSET, leader_epoch=0, lag=_NO_LAG,
            error_code=ErrorCode.topic_authorization_failed, error_message=_TOPIC_REFUSED,
        )
        for index in topic.partitions
    ]  # fmt: skip
    return _topic(request, topic.topic_name, None, partitions)


def _topic(request: Request, name: str, topic_id: UUID | None, partitions: Iterable[Any]) -> Any:
    kind = response_module(request).DescribeShareGroupOffsetsResponseTopic
    return entity(kind, topic_name=name, topic_id=topic_id, partitions=tuple(partitions))


def _group(
    request: Request, group_id: str, topics: tuple[Any, ...], code: ErrorCode = ErrorCode.none, what: str | None = None
) -> Any:
    kind = response_module(request).DescribeShareGroupOffsetsResponseGroup
    return entity(kind, group_id=group_id, topics=topics, error_code=code, error_message=what)


@on_error(90)
def failed(request: Request, code: ErrorCode) -> Any:
    groups = tuple(_group(request, group.group_id, (), code) for group in request.entity.groups)
    return entity(response_module(request).DescribeShareGroupOffsetsResponse, groups=groups)
