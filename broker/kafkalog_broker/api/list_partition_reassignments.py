"""46 ListPartitionReassignments, version 0 (KIP-455): none are ever under way."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(46, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    module = response_module(request)
    return entity(module.ListPartitionReassignmentsResponse, error_code=ErrorCode.none, error_message=None, topics=())
