"""Classic groups: their members; and groups of all types that this broker coordinates.

11 JoinGroup, versions 0 to 9: become a member, or join again for the next generation. The answer waits until the join
phase is over: everybody has joined, or the rebalance timeout has passed.
v1  rebalance timeout of its own; before, it is the session timeout
v4  a new member is given its id first (MEMBER_ID_REQUIRED, KIP-394)
v5  group.instance.id: static members (KIP-345)
v7  protocol type in the answer, protocol name may be null (KIP-559)
v8  reason (KIP-800)
v9  skip_assignment (KIP-814)

14 SyncGroup, versions 0 to 5: the leader hands in the assignment, every member gets its part. The answer of a follower
waits for the leader's assignment, which is in the log before any member has it.
v3  group.instance.id (KIP-345)
v5  protocol type and name, checked against the group's, and returned (KIP-559)

12 Heartbeat, versions 0 to 4: a member is alive, and learns whether it has to join again (REBALANCE_IN_PROGRESS).
v3  group.instance.id (KIP-345)

13 LeaveGroup, versions 0 to 5: members leave, and the others join again at once instead of after a session timeout.
v3  several members, also static ones by their group.instance.id alone (KIP-345); each has a code of its own
v5  reason (KIP-800)

15 DescribeGroups, versions 0 to 6: state, members and assignments of classic groups.
v3  authorized operations (KIP-430)
v4  group.instance.id (KIP-345)
v6  an unknown group is GROUP_ID_NOT_FOUND; before, it is just Dead

16 ListGroups, versions 0 to 5.
v4  filter by state, state in the answer (KIP-518)
v5  filter by type, type in the answer (KIP-848)

42 DeleteGroups, versions 0 to 2: forget groups without members, and all they have committed (KIP-229)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from kafkalog_broker.admin.responses import respond_in_slices
from kafkalog_broker.api.share_groups import delete_group
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import ClassicGroup, ClassicGroupState
from kafkalog_broker.groups.classic.classic_requests import JoinRequest, JoinResponse, LeavingMember, SyncRequest
from kafkalog_broker.protocol.acls import ResourceType
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import respond
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

_KNOWN_MEMBER_ID_FROM = 4
_NULL_PROTOCOL_FROM = 7
_SKIPPING_ASSIGNMENT_FROM = 9
_MS = timedelta(milliseconds=1)

A = TypeVar("A")


@api(11, 0, 9)
async def join_group(request: Request, broker: Broker) -> Any:
    asked = request.entity
    session_timeout = asked.session_timeout // _MS
    rebalance_timeout = getattr(asked, "rebalance_timeout", None)
    join = JoinRequest(
        group_id=asked.group_id,
        member_id=asked.member_id,
        client_id=request.client_id or "",
        client_host=f"/{request.connection.host}",
        protocol_type=asked.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in asked.protocols),
        session_timeout_ms=session_timeout,
        rebalance_timeout_ms=session_timeout if rebalance_timeout is None else rebalance_timeout // _MS,
        group_instance_id=getattr(asked, "group_instance_id", None),
        reason=getattr(asked, "reason", None) or "not provided",
        requires_known_member_id=request.version >= _KNOWN_MEMBER_ID_FROM,
        supports_skipping_assignment=request.version >= _SKIPPING_ASSIGNMENT_FROM,
    )
    return _joined(request, await _answer(partial(broker.groups.join, join)))


async def _answer(ask: Callable[[Callable[[A], None]], None]) -> A:
    """The answer that a callback gets, now or later."""
    answered: asyncio.Future[A] = asyncio.get_running_loop().create_future()
    ask(lambda value: None if answered.done() else answered.set_result(value))  # done: who waited was cancelled
    return await answered


@on_error(11)
def join_group_failed(request: Request, code: ErrorCode) -> Any:
    known = "" if code is ErrorCode.group_authorization_failed else request.entity.member_id  # as Kafka
    return _joined(request, JoinResponse(code, known))


def _joined(request: Request, answer: JoinResponse) -> Any:
    if answer.protocol_name is None and request.version < _NULL_PROTOCOL_FROM:
        answer = answer._replace(protocol_name="")
    return respond(request, **answer._asdict() | {"members": [member._asdict() for member in answer.members]})


@api(14, 0, 5)
async def sync_group(request: Request, broker: Broker) -> Any:
    asked = request.entity
    sync = SyncRequest(
        group_id=asked.group_id, member_id=asked.member_id, generation=asked.generation_id,
        group_instance_id=getattr(asked, "group_instance_id", None),
        protocol_type=getattr(asked, "protocol_type", None), protocol=getattr(asked, "protocol_name", None),
        assignments=tuple((part.member_id, bytes(part.assignment)) for part in asked.assignments),
    )  # fmt: skip
    answer = await _answer(partial(broker.groups.sync, sync))
    return respond(request, **answer._asdict())


@api(12, 0, 4)
async def heartbeat(request: Request, broker: Broker) -> Any:
    asked = request.entity
    instance = getattr(asked, "group_instance_id", None)
    code = broker.groups.heartbeat(asked.group_id, asked.member_id, asked.generation_id, instance)
    return respond(request, error_code=code)


_SEVERAL_MEMBERS_FROM = 3


@api(13, 0, 5)
async def leave_group(request: Request, broker: Broker) -> Any:
    asked = request.entity
    shard = broker.groups.named_shard(asked.group_id)
    if request.version < _SEVERAL_MEMBERS_FROM:
        (code,) = shard.leave(asked.group_id, [LeavingMember(asked.member_id)])
        return respond(request, error_code=code)
    leaving = [
        LeavingMember(member.member_id, member.group_instance_id, getattr(member, "reason", None) or "not provided")
        for member in asked.members
    ]
    codes = shard.leave(asked.group_id, leaving)
    return await respond_in_slices(request, "members", (
        {"member_id": member.member_id, "group_instance_id": member.group_instance_id, "error_code": code}
        for member, code in zip(leaving, codes, strict=True)
    ))  # fmt: skip


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
    groups = (_described(request, broker, group_id) for group_id in dict.fromkeys(request.entity.groups))
    return await respond_in_slices(request, "groups", groups)


def _described(request: Request, broker: Broker, group_id: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    code, message = ErrorCode.none, None
    try:
        request.check(group_id)
        fields = _fields(broker.groups.shard(group_id).classic_group(group_id))
    except BrokerError as error:
        code = error.code
        if code is ErrorCode.group_id_not_found:
            fields, message = {"group_state": ClassicGroupState.DEAD.value}, error.what
            if request.version < _GROUP_ID_NOT_FOUND_FROM:
                code, message = ErrorCode.none, None
    if getattr(request.entity, "include_authorized_operations", False) and code is ErrorCode.none:
        fields["authorized_operations"] = request.operations(ResourceType.GROUP, group_id)
    return {"error_code": code, "error_message": message, "group_id": group_id, **fields}


def _fields(group: ClassicGroup) -> dict[str, Any]:
    # Between two generations nobody can say which of a member's protocols counts.
    stable = group.state is ClassicGroupState.STABLE
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
    codes = {name: request.refused(name) or await _delete(broker, name) async for name in TimeSlice().spread(names)}
    results = ({"group_id": name, "error_code": code} for name, code in codes.items())
    return await respond_in_slices(request, "results", results)


async def _delete(broker: Broker, group_id: str) -> ErrorCode:
    try:
        if group_id in broker.groups.share_groups(group_id).groups:
            await delete_group(broker, group_id)
        else:
            broker.groups.shard(group_id).delete(group_id)
    except BrokerError as error:
        return error.code
    return ErrorCode.none
