"""39 RenewDelegationToken, versions 1 and 2: there are no tokens (`admin/delegation_tokens.py`)."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.delegation_tokens import without_token
from kafkalog_broker.broker import Broker
from kafkalog_broker.protocol.api_registry import Request, api


@api(39, 1, 2)
async def handle(request: Request, broker: Broker) -> Any:
    return without_token(request, broker)
