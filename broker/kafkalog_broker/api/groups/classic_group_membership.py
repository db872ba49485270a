"""Members of a classic group, from joining to leaving.

11 JoinGroup, versions 0 to 9: becomes a member, or joins again for the next generation. The response waits until all
members have joined or the rebalance timeout has passed.
v1  rebalance timeout; in version 0 it equals the session timeout
v4  a new member first gets its ID (MEMBER_ID_REQUIRED, KIP-394)
v5  group.instance.id: static members (KIP-345)
v7  protocol type in the response; the protocol name may be null (KIP-559)
v8  reason (KIP-800)
v9  skip_assignment (KIP-814)

14 SyncGroup, versions 0 to 5: the leader sends the assignment, and each member receives its part. The response waits
until the leader's assignment is in the log.
v3  group.instance.id (KIP-345)
v5  protocol type and name, checked against the group's and returned (KIP-559)

12 Heartbeat, versions 0 to 4: keeps the session alive. REBALANCE_IN_PROGRESS tells the member to join again.
v3  group.instance.id (KIP-345)

13 LeaveGroup, versions 0 to 5: ends memberships, so that the others rebalance without waiting for a session timeout.
v3  several members with an error each; static members may give only their group.instance.id (KIP-345)
v5  reason (KIP-800)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from kafkalog_broker.api.itemized_responses import respond_in_slices
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.classic.classic_requests import JoinRequest, JoinResponse, LeavingMember, SyncRequest
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response

_FIRST_JOIN_VERSION_WITH_REBALANCE_TIMEOUT = 1
_FIRST_JOIN_VERSION_WITH_MEMBER_ID_REQUIRED = 4
_FIRST_JOIN_VERSION_WITH_NULL_PROTOCOL = 7
_FIRST_JOIN_VERSION_WITH_SKIP_ASSIGNMENT = 9
_FIRST_LEAVE_VERSION_WITH_SEVERAL_MEMBERS = 3
_NO_REASON = "not provided"
_MS = timedelta(milliseconds=1)

T = TypeVar("T")


@api(11, 0, 9)
async def join_group(request: Request, broker: Broker) -> Any:
    body = request.entity
    has_rebalance_timeout = request.version >= _FIRST_JOIN_VERSION_WITH_REBALANCE_TIMEOUT
    rebalance_timeout = body.rebalance_timeout if has_rebalance_timeout else body.session_timeout
    join = JoinRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        client_id=request.client_id or "",
        client_host=f"/{request.connection.host}",
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in body.protocols),
        session_timeout_ms=body.session_timeout // _MS,
        rebalance_timeout_ms=rebalance_timeout // _MS,
        group_instance_id=body.group_instance_id,
        reason=body.reason or _NO_REASON,
        requires_known_member_id=request.version >= _FIRST_JOIN_VERSION_WITH_MEMBER_ID_REQUIRED,
        supports_skipping_assignment=request.version >= _FIRST_JOIN_VERSION_WITH_SKIP_ASSIGNMENT,
    )
    return _join_response(request, await _wait_for_callback(partial(broker.groups.join, join)))


@on_error(11)
def join_group_error(request: Request, code: ErrorCode) -> Any:
    """Return the error response. As in Kafka, it lacks the member ID if the request was denied."""
    member_id = "" if code is ErrorCode.group_authorization_failed else request.entity.member_id
    return _join_response(request, JoinResponse(code, member_id))


@api(14, 0, 5)
async def sync_group(request: Request, broker: Broker) -> Any:
    body = request.entity
    sync = SyncRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        generation=body.generation_id,
        group_instance_id=body.group_instance_id,
        protocol_type=body.protocol_type,
        protocol=body.protocol_name,
        assignments=tuple((part.member_id, bytes(part.assignment)) for part in body.assignments),
    )
    result = await _wait_for_callback(partial(broker.groups.sync, sync))
    return build_response(request, **result._asdict())


@api(12, 0, 4)
def heartbeat(request: Request, broker: Broker) -> Any:
    body = request.entity
    instance_id = body.group_instance_id
    code = broker.groups.heartbeat(body.group_id, body.member_id, body.generation_id, instance_id)
    return build_response(request, error_code=code)


@api(13, 0, 5)
async def leave_group(request: Request, broker: Broker) -> Any:
    body = request.entity
    shard = broker.groups.named_shard(body.group_id)
    if request.version < _FIRST_LEAVE_VERSION_WITH_SEVERAL_MEMBERS:
        (code,) = shard.leave(body.group_id, [LeavingMember(body.member_id)])
        return build_response(request, error_code=code)
    leaving = [
        LeavingMember(member.member_id, member.group_instance_id, member.reason or _NO_REASON)
        for member in body.members
    ]
    codes = shard.leave(body.group_id, leaving)
    return await respond_in_slices(request, "members", (
        {"member_id": member.member_id, "group_instance_id": member.group_instance_id, "error_code": code}
        for member, code in zip(leaving, codes, strict=True)
    ))  # fmt: skip


def _join_response(request: Request, result: JoinResponse) -> Any:
    if result.protocol_name is None and request.version < _FIRST_JOIN_VERSION_WITH_NULL_PROTOCOL:
        result = result._replace(protocol_name="")
    return build_response(request, **result._asdict() | {"members": [member._asdict() for member in result.members]})


async def _wait_for_callback(start: Callable[[Callable[[T], None]], None]) -> T:
    """Call `start` with a callback, and return the value that the callback gets, now or later."""
    received: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    # The future is already done if the request has been cancelled.
    start(lambda value: None if received.done() else received.set_result(value))
    return await received
