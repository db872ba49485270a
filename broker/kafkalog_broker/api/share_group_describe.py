"""77 ShareGroupDescribe, version 1: share groups with their members and assignments (KIP-932)."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.modern_group import ModernMember
from kafkalog_broker.groups.share.share_group_manager import ASSIGNOR
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

_NO_OPERATIONS = -(2**31)


@api(77, 1, 1)
async def handle(request: Request, broker: Broker) -> Any:
    turn, groups = TimeSlice(), []
    async for group_id in turn.spread(request.entity.group_ids):
        groups.append(await _described(request, broker, group_id, turn))
    return respond(request, groups=tuple(groups))


async def _described(request: Request, broker: Broker, group_id: str, turn: TimeSlice) -> Any:
    code = request.refused(group_id)
    if code is not ErrorCode.none:
        return _failed(request, group_id, code)
    try:
        if not group_id:
            raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")
        broker.groups.check_free_for_share(group_id)
        group = broker.groups.share_groups(group_id).group(group_id)
    except BrokerError as error:
        message = error.what if error.code is ErrorCode.group_id_not_found else None
        return _failed(request, group_id, error.code, message)
    topics = {topic for member in group.members.values() for topic in member.assigned}
    names = {topic: known.name for topic in topics if (known := broker.topics.by_id(topic)) is not None}
    if not all(request.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names.values()):
        what = "The group has described topic(s) that the client is not authorized to describe."
        return _failed(request, group_id, ErrorCode.topic_authorization_failed, what)
    members = []
    async for member in turn.spread(list(group.members.values())):
        members.append(_member(request, member, names))
    operations = _NO_OPERATIONS
    if request.entity.include_authorized_operations:
        operations = request.operations(ResourceType.GROUP, group_id)
    return entity(
        response_module(request).DescribedGroup, error_code=ErrorCode.none, group_id=group_id,
        group_state=group.state.value, group_epoch=group.epoch, assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR, members=tuple(members), authorized_operations=operations,
    )  # fmt: skip


def _member(request: Request, member: ModernMember, names: dict[Any, str]) -> Any:
    module = response_module(request)
    assigned = tuple(
        entity(module.TopicPartitions, topic_id=topic, topic_name=names[topic], partitions=partitions)
        for topic, partitions in member.assigned.items()
        if topic in names
    )
    return entity(
        module.Member, member_id=member.member_id, rack_id=member.rack_id, member_epoch=member.epoch,
        client_id=member.client_id, client_host=member.client_host, subscribed_topic_names=tuple(sorted(member.topics)),
        assignment=entity(module.Assignment, topic_partitions=assigned),
    )  # fmt: skip


def _failed(request: Request, group_id: str, code: ErrorCode, message: str | None = None) -> Any:
    return entity(
        response_module(request).DescribedGroup, error_code=code, error_message=message, group_id=group_id,
        group_state="", group_epoch=0, assignment_epoch=0, assignor_name="", members=(),
        authorized_operations=_NO_OPERATIONS,
    )  # fmt: skip
