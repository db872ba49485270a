"""64 UnregisterBroker, version 0: there is no broker but this one, which is not to be forgotten while it answers."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import needs_text
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(64, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    node_id = request.entity.broker_id
    if node_id == broker.node_id:
        return _answer(request, ErrorCode.invalid_request, f"Broker ID {node_id} is this broker, which is running")
    return _answer(request, ErrorCode.broker_id_not_registered, f"Broker ID {node_id} is not currently registered")


@on_error(64)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, code, needs_text(request, code))


def _answer(request: Request, code: ErrorCode, what: str | None) -> Any:
    return entity(response_module(request).UnregisterBrokerResponse, error_code=code, error_message=what)
