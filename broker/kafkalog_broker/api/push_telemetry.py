"""72 PushTelemetry, version 0: metrics of a client (KIP-714), in OpenTelemetry's format."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module


@api(72, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    asked, telemetry = request.entity, broker.telemetry
    instance = telemetry.push(request)
    if asked.metrics and telemetry.receiver is not None:
        await telemetry.receiver.received(instance, asked.compression_type, bytes(asked.metrics))
    return failed(request, ErrorCode.none)


@on_error(72)
def failed(request: Request, code: ErrorCode) -> Any:
    return entity(response_module(request).PushTelemetryResponse, error_code=code)
