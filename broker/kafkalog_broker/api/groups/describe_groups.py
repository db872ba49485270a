"""15 DescribeGroups, versions 0 to 6: state, members and assignments of classic groups.

v3  authorized operations (KIP-430)
v4  group.instance.id (KIP-345)
v6  an unknown group is GROUP_ID_NOT_FOUND; in older versions its state is Dead

A group that is named more than once is described once.
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.itemized_responses import respond_in_slices
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import ClassicGroup, ClassicGroupState
from kafkalog_broker.protocol.acls import ResourceType
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request

_FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 6


@api(15, 0, 6)
async def describe_groups(request: Request, broker: Broker) -> Any:
    groups = (_describe(request, broker, group_id) for group_id in dict.fromkeys(request.entity.groups))
    return await respond_in_slices(request, "groups", groups)


def _describe(request: Request, broker: Broker, group_id: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    code, message = ErrorCode.none, None
    try:
        request.authorize(group_id)
        fields = _group_fields(broker.groups.shard(group_id).classic_group(group_id))
    except BrokerError as error:
        code = error.code
        if code is ErrorCode.group_id_not_found:
            fields = {"group_state": ClassicGroupState.DEAD.value}
            message = error.what
            if request.version < _FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
                code, message = ErrorCode.none, None
    if request.entity.include_authorized_operations and code is ErrorCode.none:
        fields["authorized_operations"] = request.operations(ResourceType.GROUP, group_id)
    return {"error_code": code, "error_message": message, "group_id": group_id, **fields}


def _group_fields(group: ClassicGroup) -> dict[str, Any]:
    # Only a stable group has chosen a protocol, to which the metadata of its members belong.
    is_stable = group.state is ClassicGroupState.STABLE
    members = [
        {"member_id": member.member_id, "group_instance_id": member.group_instance_id, "client_id": member.client_id,
         "client_host": member.client_host, "member_assignment": member.assignment,
         "member_metadata": member.metadata(group.protocol) if is_stable else b""}
        for member in group.members.values()
    ]  # fmt: skip
    protocol = (group.protocol or "") if is_stable else ""
    return {
        "group_state": group.state.value, "protocol_type": group.protocol_type or "", "protocol_data": protocol,
        "members": members,
    }  # fmt: skip
