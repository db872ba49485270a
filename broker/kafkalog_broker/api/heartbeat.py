"""12 Heartbeat, versions 0 to 4: a member is alive, and learns whether it has to join again (REBALANCE_IN_PROGRESS).

v3  group.instance.id (KIP-345)
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(12, 0, 4)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    instance = getattr(asked, "group_instance_id", None)
    return failed(request, broker.groups.heartbeat(asked.group_id, asked.member_id, asked.generation_id, instance))


@on_error(12)
def failed(request: Request, code: ErrorCode) -> Any:
    return entity(response_module(request).HeartbeatResponse, error_code=code)
