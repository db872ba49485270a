"""69 ConsumerGroupDescribe, versions 0 and 1: state, epochs, members and assignments of consumer groups (KIP-848).

v1  whether a member uses the consumer protocol or the classic one (KIP-1099)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

from kafkalog_broker.api.groups.modern_group_description import (
    Fields,
    GroupDescription,
    assignment_struct,
    describe_groups,
    existing_topic_names,
)
from kafkalog_broker.broker import Broker
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.consumer.consumer_target_assignment import preferred_assignor
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


@api(69, 0, 1)
async def consumer_group_describe(request: Request, broker: Broker) -> Any:
    return await describe_groups(request, broker.groups.consumer_groups, partial(_describe, broker))


def _describe(broker: Broker, group: ConsumerGroup) -> GroupDescription:
    assignments = [
        assignment
        for member_id, member in group.members.items()
        for assignment in (member.assigned, member.pending_revocation, group.target.get(member_id, {}))
    ]
    names = existing_topic_names(broker, assignments)
    assignor = preferred_assignor(broker.groups.context.config, group.members.values())
    return GroupDescription(names.values(), {"assignor_name": assignor}, partial(_member_fields, group, names))


def _member_fields(group: ConsumerGroup, names: Mapping[UUID, str], member: ConsumerMember) -> Fields:
    owned: dict[UUID, list[int]] = {}
    # A member owns partitions that are being revoked until it confirms the revocation.
    for assignment in (member.assigned, member.pending_revocation):
        for topic_id, epoch_by_partition in assignment.items():
            owned.setdefault(topic_id, []).extend(epoch_by_partition)
    return {
        "subscribed_topic_regex": member.regex,
        "assignment": assignment_struct(owned, names),
        "target_assignment": assignment_struct(group.target.get(member.member_id, {}), names),
        "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }
