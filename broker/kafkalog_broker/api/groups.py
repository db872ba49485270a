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
from kafkalog_broker.groups.classic.classic_group import Group, GroupState
from kafkalog_broker.protocol.acls import ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.hot_responses import OPERATIONS_NOT_ASKED_FOR
from kafkalog_broker.protocol.response_entity import respond


@api(16, 0, 5)
async def list_groups(request: Request, broker: Broker) -> Any:
    states, types = getattr(request.entity, "states_filter", ()), getattr(request.entity, "types_filter", ())
    groups = [
        group._asdict()
        for group in broker.groups.list_groups(states, types)
        if request.access is None or not request.refused(group.group_id, quiet=True)
    ]
    return respond(request, groups=groups)


_GROUP_ID_NOT_FOUND_FROM = 6


@api(15, 0, 6)
async def describe_groups(request: Request, broker: Broker) -> Any:
    """A group that is named more than once is answered once."""
    groups = [_described(request, broker, group_id) for group_id in dict.fromkeys(request.entity.groups)]
    return respond(request, groups=groups)


def _described(request: Request, broker: Broker, group_id: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    code, message = ErrorCode.none, None
    try:
        request.check(group_id)
        fields = _fields(broker.groups.shard(group_id).classic_group(group_id))
    except BrokerError as error:
        code = error.code
        if code is ErrorCode.group_id_not_found:
            fields, message = {"group_state": GroupState.DEAD.value}, error.what
            if request.version < _GROUP_ID_NOT_FOUND_FROM:
                code, message = ErrorCode.none, None
    operations = OPERATIONS_NOT_ASKED_FOR
    if getattr(request.entity, "include_authorized_operations", False) and code is ErrorCode.none:
        operations = request.operations(ResourceType.GROUP, group_id)
    return {
        "error_code": code, "error_message": message, "group_id": group_id, "authorized_operations": operations,
        **fields,
    }  # fmt: skip


def _fields(group: Group) -> dict[str, Any]:
    # Between two generations nobody can say which of a member's protocols counts.
    stable = group.state is GroupState.STABLE
    members = [
        {"member_id": member.member_id, "group_instance_id": member.group_instance_id, "client_id": member.client_id,
         "client_host": member.client_host, "member_assignment": member.assignment,
         "member_metadata": member.metadata(group.protocol) if stable else b""}
        for member in group.members.values()
    ]  # fmt: skip
    protocol = (group.protocol or "") if stable else ""
    return {
        "group_state": group.state.value, "protocol_type": group.protocol_type or "", "protocol_data": protocol,
        "members": members,
    }  # fmt: skip


@api(42, 0, 2)
async def delete_groups(request: Request, broker: Broker) -> Any:
    names = dict.fromkeys(request.entity.groups_names)
    codes = {name: request.refused(name) or await _delete(broker, name) for name in names}
    return respond(request, results=[{"group_id": name, "error_code": code} for name, code in codes.items()])


async def _delete(broker: Broker, group_id: str) -> ErrorCode:
    try:
        if broker.groups.has_share_group(group_id):
            await delete_group(broker, group_id)
        else:
            broker.groups.shard(group_id).delete(group_id)
    except BrokerError as error:
        return error.code
    return ErrorCode.none
