"""90 DescribeShareGroupOffsets, versions 0 and 1: the start offsets of share partitions (KIP-932).

v1  lag (KIP-1226)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_records import NO_STATE
from kafkalog_broker.protocol.acls import DENIALS, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.share.share_state import NO_START_OFFSET, NOT_COUNTED, UNKNOWN_STATE, SharePartitionKey

_NO_LAG = -1


class _SharedPartitions(NamedTuple):
    """Partitions of a topic to describe. The topic has no ID if it does not exist."""

    topic: str
    topic_id: UUID | None
    partitions: Iterable[int]


@api(90, 0, 1)
async def describe_share_group_offsets(request: Request, broker: Broker) -> Any:
    groups = []
    time_slice = TimeSlice()
    for group in request.entity.groups:
        code, message, topics = ErrorCode.none, None, []
        try:
            request.authorize(group.group_id)
            topics = await _describe_group(request, broker, group, time_slice)
        except BrokerError as error:
            code, message = error.code, error.message
        groups.append({"group_id": group.group_id, "topics": topics, "error_code": code, "error_message": message})
    return build_response(request, groups=groups)


async def _describe_group(request: Request, broker: Broker, group: Any, time_slice: TimeSlice) -> list[dict[str, Any]]:
    """Return the topics of a group: existing ones, then missing ones, then those that the sender may not describe."""
    denied: list[dict[str, Any]] = []
    topics: list[_SharedPartitions] = []
    if group.topics is None:
        topics = _initialized_topics(request, broker, group.group_id)
    for topic in group.topics or ():
        if request.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic_name):
            existing_topic = broker.topics.get(topic.topic_name)
            topic_id = None if existing_topic is None else existing_topic.id
            topics.append(_SharedPartitions(topic.topic_name, topic_id, topic.partitions))
        else:
            code, message = DENIALS[ResourceType.TOPIC]
            error = {
                "start_offset": NO_START_OFFSET, "lag": _NO_LAG, "error_code": code, "error_message": message,
            }  # fmt: skip
            partitions = [{"partition_index": index, **error} for index in topic.partitions]
            denied.append({"topic_name": topic.topic_name, "partitions": partitions})
    described = []
    for shared in sorted(topics, key=lambda shared: shared.topic_id is None):
        partitions = [
            _describe_partition(broker, group.group_id, shared, index)
            async for index in time_slice.spread(shared.partitions)
        ]
        described.append({"topic_name": shared.topic, "topic_id": shared.topic_id, "partitions": partitions})
    return described + denied


def _initialized_topics(request: Request, broker: Broker, group_id: str) -> list[_SharedPartitions]:
    """Return the partitions of which a group has state, as far as the sender may describe them."""
    group = broker.groups.share_groups(group_id).groups.get(group_id)
    state = NO_STATE if group is None else group.partitions
    topics = []
    for topic_id, shared in state.initialized.items():
        existing_topic = broker.topics.by_id(topic_id)
        if existing_topic is not None and request.may(Operation.DESCRIBE, ResourceType.TOPIC, existing_topic.name):
            topics.append(_SharedPartitions(existing_topic.name, topic_id, shared.partitions))
    return topics


def _describe_partition(broker: Broker, group_id: str, shared: _SharedPartitions, index: int) -> dict[str, int]:
    summary, lag = UNKNOWN_STATE, _NO_LAG
    try:
        if shared.topic_id is not None:
            summary = broker.share_coordinator.summary(SharePartitionKey(group_id, shared.topic_id, index))
        if summary.start_offset != NO_START_OFFSET and summary.delivery_complete_count != NOT_COUNTED:
            high_watermark = broker.log(shared.topic, index).high_watermark
            lag = high_watermark - summary.start_offset - summary.delivery_complete_count
    except BrokerError:
        summary, lag = UNKNOWN_STATE, _NO_LAG  # as in Kafka, the response does not show the error
    return {
        "partition_index": index, "start_offset": summary.start_offset, "leader_epoch": summary.leader_epoch,
        "lag": lag,
    }  # fmt: skip
