"""11 JoinGroup, versions 0 to 9: become a member of a classic group, or join it again for the next generation.

The answer waits until the join phase is over: everybody has joined, or the rebalance timeout has passed.

v1  rebalance timeout of its own; before, it is the session timeout
v4  a new member is given its id first (MEMBER_ID_REQUIRED, KIP-394)
v5  group.instance.id: static members (KIP-345)
v7  protocol type in the answer, protocol name may be null (KIP-559)
v8  reason (KIP-800)
v9  skip_assignment (KIP-814)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.classic.messages import JoinAnswer, JoinRequest
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module

_KNOWN_MEMBER_ID_FROM = 4
_NULL_PROTOCOL_FROM = 7
_SKIPPING_ASSIGNMENT_FROM = 9
_MS = timedelta(milliseconds=1)

A = TypeVar("A")


@api(11, 0, 9)
async def handle(request: Request, broker: Broker) -> Any:
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
    answered: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
    broker.groups.join(join, answer_to(answered))
    return _answer(request, await answered)


def answer_to(future: asyncio.Future[A]) -> Callable[[A], None]:
    """A callback that ends `future`, unless whoever waits for it has been cancelled."""

    def answer(value: A) -> None:
        if not future.done():
            future.set_result(value)

    return answer


@on_error(11)
def failed(request: Request, code: ErrorCode) -> Any:
    known = "" if code is ErrorCode.group_authorization_failed else request.entity.member_id  # as Kafka
    return _answer(request, JoinAnswer(code, known))


def _answer(request: Request, answer: JoinAnswer) -> Any:
    module = response_module(request)
    protocol = answer.protocol
    if protocol is None and request.version < _NULL_PROTOCOL_FROM:
        protocol = ""
    return entity(
        module.JoinGroupResponse,
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(
            entity(
                module.JoinGroupResponseMember,
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ),
    )
