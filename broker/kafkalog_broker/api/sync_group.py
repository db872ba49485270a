"""14 SyncGroup, versions 0 to 5: the leader hands in the assignment, everybody gets their part of it.

The answer of a follower waits for the leader's assignment, which is in the log before anybody has it.

v3  group.instance.id (KIP-345)
v5  protocol type and name, checked against the group's, and returned (KIP-559)
"""

from __future__ import annotations

import asyncio
from typing import Any

from kafkalog_broker.api.join_group import answer_to
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.classic.messages import SyncAnswer, SyncRequest
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(14, 0, 5)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    sync = SyncRequest(
        group_id=asked.group_id,
        member_id=asked.member_id,
        generation=asked.generation_id,
        group_instance_id=getattr(asked, "group_instance_id", None),
        protocol_type=getattr(asked, "protocol_type", None),
        protocol=getattr(asked, "protocol_name", None),
        assignments=tuple((part.member_id, bytes(part.assignment)) for part in asked.assignments),
    )
    answered: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
    broker.groups.sync(sync, answer_to(answered))
    return _answer(request, await answered)


@on_error(14)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, SyncAnswer(code))


def _answer(request: Request, answer: SyncAnswer) -> Any:
    return entity(
        response_module(request).SyncGroupResponse,
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )
