"""41 DescribeDelegationToken, versions 1 to 3: there are no tokens (`admin/delegation_tokens.py`)."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.delegation_tokens import why_not
from kafkalog_broker.broker import Broker
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(41, 1, 3)
async def handle(request: Request, broker: Broker) -> Any:
    module = response_module(request)
    return entity(module.DescribeDelegationTokenResponse, error_code=why_not(request, broker), tokens=())
