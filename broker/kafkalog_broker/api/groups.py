"""Groups that this broker coordinates.

15 DescribeGroups, versions 0 to 6: state, members and assignments of classic groups.
v3  authorized operations (KIP-430)
v4  group.instance.id (KIP-345)
v6  an unknown group is GROUP_ID_NOT_FOUND; before, it is just Dead

16 ListGroups, versions 0 to 5.
v4  filter by state, state in the answer (KIP-518)
v5  filter by type, type in the answer (KIP-848)

42 DeleteGroups, versions 0 to 2: forget groups without members, and all they have committed (KIP-229)."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.share_groups import delete_group
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.messages import DescribedGroup
from kafkalog_broker.protocol.acls import ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.metadata_response import OPERATIONS_NOT_ASKED_FOR
from kafkalog_broker.protocol.response_entity import respond


@api(16, 0, 5)
async def list_groups(request: Request, broker: Broker) -> Any:
    states, types = getattr(request.entity, "states_filter", ()), getattr(request.entity, "types_filter", ())
    groups = [
        {"group_id": group.group_id, "protocol_type": group.protocol_type, "group_state": group.state,
         "group_type": group.type}
        for group in broker.groups.list_groups(states, types)
        if request.access is None or not request.refused(group.group_id, quiet=True)
    ]  # fmt: skip
    return respond(request, groups=groups)


_GROUP_ID_NOT_FOUND_FROM = 6


@api(15, 0, 6)
async def describe_groups(request: Request, broker: Broker) -> Any:
    """A group that is named more than once is answered once."""
    groups = []
    for group_id in dict.fromkeys(request.entity.groups):
        code = request.refused(group_id)
        group = broker.groups.describe(group_id) if not code else DescribedGroup(group_id, "", error=code)
        groups.append(_described(request, group))
    return respond(request, groups=groups)


def _described(request: Request, group: DescribedGroup) -> dict[str, Any]:
    code, message = group.error, group.error_message
    if code is ErrorCode.group_id_not_found and request.version < _GROUP_ID_NOT_FOUND_FROM:
        code, message = ErrorCode.none, None
    operations = OPERATIONS_NOT_ASKED_FOR
    if getattr(request.entity, "include_authorized_operations", False) and code is ErrorCode.none:
        operations = request.operations(ResourceType.GROUP, group.group_id)
    members = [
        {"member_id": member.member_id, "group_instance_id": member.group_instance_id, "client_id": member.client_id,
         "client_host": member.client_host, "member_metadata": member.metadata, "member_assignment": member.assignment}
        for member in group.members
    ]  # fmt: skip
    return {
        "error_code": code, "error_message": message, "group_id": group.group_id, "group_state": group.state,
        "protocol_type": group.protocol_type, "protocol_data": group.protocol, "members": members,
        "authorized_operations": operations,
    }  # fmt: skip


@api(42, 0, 2)
async def delete_groups(request: Request, broker: Broker) -> Any:
    names = dict.fromkeys(request.entity.groups_names)
    codes = {name: request.refused(name) or await _delete(broker, name) for name in names}
    return respond(request, results=[{"group_id": name, "error_code": code} for name, code in codes.items()])


async def _delete(broker: Broker, group_id: str) -> ErrorCode:
    if not broker.groups.has_share_group(group_id):
        return broker.groups.delete(group_id)
    try:
        await delete_group(broker, group_id)
    except BrokerError as error:
        return error.code
    return ErrorCode.none
