"""69 ConsumerGroupDescribe, versions 0 to 1: state, epochs, members and assignments of consumer groups (KIP-848).

v1  whether a member speaks the consumer protocol (KIP-1099)
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.consumer.consumer_group_manager import (
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopic,
)
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.metadata_response import OPERATIONS_NOT_ASKED_FOR
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import TimeSlice


@api(69, 0, 1)
async def handle(request: Request, broker: Broker) -> Any:
    """A group that is named more than once is answered once."""
    turn, refused, found = TimeSlice(), [], []
    async for group_id in turn.spread(dict.fromkeys(request.entity.group_ids)):
        code = request.refused(group_id)
        if code:
            refused.append(DescribedConsumerGroup(group_id, error=code))
        else:
            found.append(_visible(request, broker.groups.describe_consumer_group(group_id)))
    return await _answer(request, refused + found, turn)


def _visible(request: Request, group: DescribedConsumerGroup) -> DescribedConsumerGroup:
    """A group with a topic that the sender may not describe is not described either."""
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


async def _answer(request: Request, groups: list[DescribedConsumerGroup], turn: TimeSlice) -> Any:
    module = response_module(request)
    wants_operations = request.entity.include_authorized_operations
    described = []
    for group in groups:
        members = [_member(module, member) async for member in turn.spread(group.members)]
        operations = OPERATIONS_NOT_ASKED_FOR
        if wants_operations and group.error is ErrorCode.none:
            operations = request.operations(ResourceType.GROUP, group.group_id)
        described.append(
            entity(
                module.DescribedGroup,
                error_code=group.error,
                error_message=group.error_message,
                group_id=group.group_id,
                group_state=group.state,
                group_epoch=group.epoch,
                assignment_epoch=group.assignment_epoch,
                assignor_name=group.assignor,
                members=tuple(members),
                authorized_operations=operations,
            )
        )
    return respond(request, groups=tuple(described))


def _member(module: Any, member: DescribedConsumer) -> Any:
    return entity(
        module.Member,
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.regex,
        assignment=_assignment(module, member.assignment),
        target_assignment=_assignment(module, member.target),
        member_type=0 if member.is_classic else 1,
    )


def _assignment(module: Any, topics: tuple[DescribedTopic, ...]) -> Any:
    parts = tuple(
        entity(module.TopicPartitions, topic_id=topic.topic_id, topic_name=topic.name, partitions=topic.partitions)
        for topic in topics
    )
    return entity(module.Assignment, topic_partitions=parts)
