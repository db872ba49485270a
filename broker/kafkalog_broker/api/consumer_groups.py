"""Consumer groups (KIP-848).

68 ConsumerGroupHeartbeat, versions 0 to 1: a member of a consumer group joins, goes on or leaves (KIP-848).

The answer says its epoch, and which partitions are its own from now on.

v1  the client makes the member id (KIP-1082); regular expressions

69 ConsumerGroupDescribe, versions 0 to 1: state, epochs, members and assignments of consumer groups (KIP-848).

v1  whether a member speaks the consumer protocol (KIP-1099)
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.runtime import MOST_NAMES, write_error
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer.consumer_group_manager import (
    ConsumerHeartbeatRequest,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopic,
)
from kafkalog_broker.groups.modern.group_manager import HeartbeatResponse
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.metadata_response import OPERATIONS_NOT_ASKED_FOR
from kafkalog_broker.protocol.response_entity import error_response, respond

_CLIENTS_MAKE_IDS_FROM = 1
_MS = timedelta(milliseconds=1)


@api(68, 0, 1)
def consumer_group_heartbeat(request: Request, broker: Broker) -> Any:
    """Also offsets that are committed belong to topics: who may not see one of them does not join for it."""
    asked = request.entity
    names = asked.subscribed_topic_names or ()
    if len(names) > MOST_NAMES:
        return error_response(
            request, ErrorCode.invalid_request, f"{len(names)} topics, at most {MOST_NAMES} may be named"
        )
    if request.access is not None:
        for name in names:
            if not request.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
                return error_response(request, ErrorCode.topic_authorization_failed)
    try:
        return _answer(request, broker.groups.consumer_heartbeat(_heartbeat(request)))
    except BrokerError as error:
        return error_response(request, write_error(error.code), error.what)


def _heartbeat(request: Request) -> ConsumerHeartbeatRequest:
    asked, access = request.entity, request.access
    names = asked.subscribed_topic_names
    owned: dict[UUID, set[int]] | None = None if asked.topic_partitions is None else {}
    if owned is not None:
        for topic in asked.topic_partitions:
            owned.setdefault(topic.topic_id or UUID(int=0), set()).update(topic.partitions)
    return ConsumerHeartbeatRequest(
        group_id=asked.group_id,
        member_id=asked.member_id,
        member_epoch=asked.member_epoch,
        instance_id=asked.instance_id,
        rack_id=asked.rack_id,
        rebalance_timeout_ms=asked.rebalance_timeout // _MS,
        topics=None if names is None else tuple(names),
        regex=getattr(asked, "subscribed_topic_regex", None),
        assignor=asked.server_assignor,
        owned=owned,
        client_id=request.client_id or "",
        client_host=f"/{request.connection.host}",
        needs_member_id=request.version >= _CLIENTS_MAKE_IDS_FROM,
        may_describe=None
        if access is None
        else lambda name: access.may(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True),
    )


def _answer(request: Request, answer: HeartbeatResponse) -> Any:
    assignment = None
    if answer.assignment is not None:
        topics = [{"topic_id": topic, "partitions": indexes} for topic, indexes in answer.assignment.items()]
        assignment = {"topic_partitions": topics}
    return respond(
        request, member_id=answer.member_id, member_epoch=answer.member_epoch,
        heartbeat_interval=answer.interval_ms, assignment=assignment,
    )  # fmt: skip


@api(69, 0, 1)
async def consumer_group_describe(request: Request, broker: Broker) -> Any:
    """A group that is named more than once is answered once."""
    refused, described = [], []
    for group_id in dict.fromkeys(request.entity.group_ids):
        code = request.refused(group_id)
        if code:
            refused.append(DescribedConsumerGroup(group_id, error=code))
        else:
            described.append(_visible(request, broker.groups.describe_consumer_group(group_id)))
    return respond(request, groups=[_described(request, group) for group in refused + described])


def _visible(request: Request, group: DescribedConsumerGroup) -> DescribedConsumerGroup:
    if request.access is None:
        return group
    names = {topic.name for member in group.members for topic in (*member.assignment, *member.target)}
    if all(request.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names)):
        return group
    return DescribedConsumerGroup(
        group.group_id,
        error=ErrorCode.topic_authorization_failed,
        error_message="The group has described topic(s) that the client is not authorized to describe.",
    )


def _described(request: Request, group: DescribedConsumerGroup) -> dict[str, Any]:
    operations = OPERATIONS_NOT_ASKED_FOR
    if request.entity.include_authorized_operations and group.error is ErrorCode.none:
        operations = request.operations(ResourceType.GROUP, group.group_id)
    return {
        "error_code": group.error, "error_message": group.error_message, "group_id": group.group_id,
        "group_state": group.state, "group_epoch": group.epoch, "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor, "members": map(_member, group.members), "authorized_operations": operations,
    }  # fmt: skip


def _member(member: DescribedConsumer) -> dict[str, Any]:
    return {
        "member_id": member.member_id, "instance_id": member.instance_id, "rack_id": member.rack_id,
        "member_epoch": member.epoch, "client_id": member.client_id, "client_host": member.client_host,
        "subscribed_topic_names": member.topics, "subscribed_topic_regex": member.regex,
        "assignment": _assignment(member.assignment), "target_assignment": _assignment(member.target),
        "member_type": 0 if member.is_classic else 1,
    }  # fmt: skip


def _assignment(topics: tuple[DescribedTopic, ...]) -> dict[str, Any]:
    return {
        "topic_partitions": [
            {"topic_id": topic.topic_id, "topic_name": topic.name, "partitions": topic.partitions} for topic in topics
        ]
    }
