"""13 LeaveGroup, versions 0 to 5: members leave, and the others join again at once instead of after a session timeout.

v3  several members, also static ones by their group.instance.id alone (KIP-345); each has a code of its own
v5  reason (KIP-800)
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.classic.messages import LeavingMember
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module

_SEVERAL_MEMBERS_FROM = 3


@api(13, 0, 5)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    module = response_module(request)
    if request.version < _SEVERAL_MEMBERS_FROM:
        (code,) = broker.groups.leave(asked.group_id, [LeavingMember(asked.member_id)])
        return failed(request, code)
    leaving = [
        LeavingMember(member.member_id, member.group_instance_id, getattr(member, "reason", None) or "not provided")
        for member in asked.members
    ]
    codes = broker.groups.leave(asked.group_id, leaving)
    members = tuple(
        entity(
            module.MemberResponse,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=code,
        )
        for member, code in zip(leaving, codes, strict=True)
    )
    return entity(module.LeaveGroupResponse, error_code=ErrorCode.none, members=members)


@on_error(13)
def failed(request: Request, code: ErrorCode) -> Any:
    return entity(response_module(request).LeaveGroupResponse, error_code=code, members=())
