"""46 ListPartitionReassignments, version 0 (KIP-455): none are ever under way."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import needs_text
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(46, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    return _answer(request, ErrorCode.none, None)


@on_error(46)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, code, needs_text(request, code))


def _answer(request: Request, code: ErrorCode, what: str | None) -> Any:
    response = response_module(request).ListPartitionReassignmentsResponse
    return entity(response, error_code=code, error_message=what, topics=())
