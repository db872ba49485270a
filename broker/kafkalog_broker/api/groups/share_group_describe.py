"""77 ShareGroupDescribe, version 1: state, epochs, members and assignments of share groups (KIP-932)."""

from __future__ import annotations

from functools import partial
from typing import Any

from kafkalog_broker.api.groups.modern_group_description import (
    GroupDescription,
    assignment_struct,
    describe_groups,
    existing_topic_names,
)
from kafkalog_broker.broker import Broker
from kafkalog_broker.groups.share.share_group import ShareGroup
from kafkalog_broker.groups.share.share_group_heartbeat import ASSIGNOR
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request


@api(77, 1, 1)
async def share_group_describe(request: Request, broker: Broker) -> Any:
    return await describe_groups(request, broker.groups.share_groups, partial(_describe, broker))


def _describe(broker: Broker, group: ShareGroup) -> GroupDescription:
    names = existing_topic_names(broker, (member.assigned for member in group.members.values()))
    return GroupDescription(
        names.values(),
        {"assignor_name": ASSIGNOR},
        lambda member: {"assignment": assignment_struct(member.assigned, names)},
    )
