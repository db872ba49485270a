"""Start offsets of share groups (KIP-932).

90 DescribeShareGroupOffsets, versions 0 and 1: start offsets of share partitions.
v1  lag (KIP-1226)
91 AlterShareGroupOffsets, version 0: sets the start offsets of a share group without members.
92 DeleteShareGroupOffsets, version 0: deletes the state of a share group without members for some topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.admin.share_group_state import alter_start_offsets, delete_topic_state
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_records import NO_STATE
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import error_response, respond
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.share.share_coordinator import UNKNOWN_PARTITION, UNKNOWN_STATE
from kafkalog_broker.share.state_records import NO_START_OFFSET, NOT_COUNTED, SharePartitionKey

_NO_LAG = -1
_TOPIC_DENIED = "Topic authorization failed."


@api(90, 0, 1)
async def describe_share_group_offsets(request: Request, broker: Broker) -> Any:
    groups, time_slice = [], TimeSlice()
    for group in request.entity.groups:
        code, message, topics = ErrorCode.none, None, []
        try:
            request.authorize(group.group_id)
            topics = await _describe_group(request, broker, group, time_slice)
        except BrokerError as error:
            code, message = error.code, error.message
        groups.append({"group_id": group.group_id, "topics": topics, "error_code": code, "error_message": message})
    return respond(request, groups=groups)


class _SharedPartitions(NamedTuple):
    """Partitions of a topic to describe. The topic has no ID if it does not exist."""

    topic: str
    topic_id: UUID | None
    partitions: Iterable[int]


async def _describe_group(request: Request, broker: Broker, group: Any, time_slice: TimeSlice) -> list[dict[str, Any]]:
    """Return the topics of a group: existing ones, then missing ones, then those that the sender may not describe."""
    denied: list[dict[str, Any]] = []
    topics: list[_SharedPartitions] = []
    if group.topics is None:
        topics = _initialized_topics(request, broker, group.group_id)
    for topic in group.topics or ():
        if request.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic_name):
            known = broker.topics.get(topic.topic_name)
            topic_id = None if known is None else known.id
            topics.append(_SharedPartitions(topic.topic_name, topic_id, topic.partitions))
        else:
            error = {
                "start_offset": NO_START_OFFSET, "lag": _NO_LAG,
                "error_code": ErrorCode.topic_authorization_failed, "error_message": _TOPIC_DENIED,
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
        known = broker.topics.by_id(topic_id)
        if known is not None and request.may(Operation.DESCRIBE, ResourceType.TOPIC, known.name):
            topics.append(_SharedPartitions(known.name, topic_id, shared.partitions))
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


@api(91, 0, 0)
async def alter_share_group_offsets(request: Request, broker: Broker) -> Any:
    body = request.entity
    _require_group_id(body.group_id)
    start_offsets: dict[UUID, dict[int, int]] = {}
    denied: dict[str, BrokerError] = {}
    for topic in body.topics:
        known = broker.topics.get(topic.topic_name)
        if code := request.authorization_error(topic.topic_name):
            denied[topic.topic_name] = BrokerError(code)
        elif known is not None:
            start_offsets[known.id] = {
                partition.partition_index: partition.start_offset
                for partition in topic.partitions
                if 0 <= partition.partition_index < known.partitions
            }
    try:
        errors = await alter_start_offsets(broker, body.group_id, start_offsets, TimeSlice())
    except BrokerError as error:
        return error_response(request, error.code, error.what)
    unknown_partition = BrokerError(ErrorCode.unknown_topic_or_partition, UNKNOWN_PARTITION)
    topics = []
    for topic in body.topics:
        known = broker.topics.get(topic.topic_name)
        topic_id = None if known is None else known.id
        partitions = []
        for index in (partition.partition_index for partition in topic.partitions):
            failure = denied.get(topic.topic_name)
            if failure is None and topic_id is not None:
                failure = errors.get(SharePartitionKey(body.group_id, topic_id, index))
            if failure is None and (topic_id is None or index not in start_offsets.get(topic_id, ())):
                failure = unknown_partition
            code, message = (ErrorCode.none, None) if failure is None else (failure.code, failure.message)
            partitions.append({"partition_index": index, "error_code": code, "error_message": message})
        topics.append({"topic_name": topic.topic_name, "topic_id": topic_id, "partitions": partitions})
    return respond(request, responses=topics)


@api(92, 0, 0)
async def delete_share_group_offsets(request: Request, broker: Broker) -> Any:
    """Results are in Kafka's order: denied topics, deleted ones, those without state, unknown ones, failed ones."""
    body = request.entity
    _require_group_id(body.group_id)
    names: dict[UUID, str] = {}
    denied, unknown = [], []
    for name in (topic.topic_name for topic in body.topics):
        known = broker.topics.get(name)
        if not request.may(Operation.READ, ResourceType.TOPIC, name):
            denied.append(_topic_result(name, None, ErrorCode.topic_authorization_failed, _TOPIC_DENIED))
        elif known is None:
            unknown.append(_topic_result(name, None, ErrorCode.unknown_topic_or_partition, UNKNOWN_PARTITION))
        else:
            names[known.id] = name
    try:
        outcomes = await delete_topic_state(broker, body.group_id, names.keys(), TimeSlice())
    except BrokerError as error:
        return error_response(request, error.code, error.what)
    deleted = [_topic_result(names[topic_id], topic_id) for topic_id, error in outcomes.items() if error is None]
    without_state = [
        _topic_result(name, None, ErrorCode.unknown_topic_or_partition, "There is no offset information to delete.")
        for topic_id, name in names.items()
        if topic_id not in outcomes
    ]
    failed = [
        _topic_result(names[topic_id], topic_id, error.code, error.what)
        for topic_id, error in outcomes.items()
        if error is not None
    ]
    return respond(request, responses=[*denied, *deleted, *without_state, *unknown, *failed])


def _require_group_id(group_id: str) -> None:
    if not group_id:
        raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")


def _topic_result(
    name: str, topic_id: UUID | None, code: ErrorCode = ErrorCode.none, message: str | None = None
) -> dict[str, Any]:
    return {"topic_name": name, "topic_id": topic_id, "error_code": code, "error_message": message}
