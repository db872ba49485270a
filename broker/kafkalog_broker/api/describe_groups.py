"""15 DescribeGroups, versions 0 to 6: state, members and assignments of classic groups.

v3  authorized operations (KIP-430)
v4  group.instance.id (KIP-345)
v6  an unknown group is GROUP_ID_NOT_FOUND; before, it is just Dead
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.classic.messages import DescribedGroup
from kafkalog_broker.protocol.acls import ResourceType
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.metadata_response import OPERATIONS_NOT_ASKED_FOR
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.runtime.turn import Turn

_GROUP_ID_NOT_FOUND_FROM = 6


@api(15, 0, 6)
async def handle(request: Request, broker: Broker) -> Any:
    """A group that is named more than once is answered once."""
    turn, groups = Turn(), []
    async for group_id in turn.spread(dict.fromkeys(request.entity.groups)):
        code = request.refused(group_id)
        groups.append(broker.groups.describe(group_id) if not code else DescribedGroup(group_id, "", error=code))
    return _answer(request, groups)


@on_error(15)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, [DescribedGroup(group_id, "", error=code) for group_id in request.entity.groups])


def _answer(request: Request, groups: list[DescribedGroup]) -> Any:
    module = response_module(request)
    wants_operations = getattr(request.entity, "include_authorized_operations", False)

    def described(group: DescribedGroup) -> Any:
        code, message = group.error, group.error_message
        if code is ErrorCode.group_id_not_found and request.version < _GROUP_ID_NOT_FOUND_FROM:
            code, message = ErrorCode.none, None
        operations = OPERATIONS_NOT_ASKED_FOR
        if wants_operations and code is ErrorCode.none:
            operations = request.operations(ResourceType.GROUP, group.group_id)
        return entity(
            module.DescribedGroup,
            error_code=code,
            error_message=message,
            group_id=group.group_id,
            group_state=group.state,
            protocol_type=group.protocol_type,
            protocol_data=group.protocol,
            members=tuple(
                entity(
                    module.DescribedGroupMember,
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata,
                    member_assignment=member.assignment,
                )
                for member in group.members
            ),
            authorized_operations=operations,
        )

    return entity(module.DescribeGroupsResponse, groups=tuple(map(described, groups)))
