"""Metrics of clients (KIP-714).

71 GetTelemetrySubscriptions, version 0: the metrics that a client is to push, and how often; 72 PushTelemetry, version
0: those metrics, in OpenTelemetry's format.

ApiVersions tells of them while metrics are served, as a Kafka that has a receiver. Who asks all the same is answered.
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import duration, entity, response_module

_ACCEPTED_CODECS = (4, 3, 1, 2)  # zstd, lz4, gzip, snappy: as Kafka prefers them


@api(71, 0, 0)
async def get_telemetry_subscriptions(request: Request, broker: Broker) -> Any:
    instance = broker.telemetry.get(request)
    return entity(
        response_module(request).GetTelemetrySubscriptionsResponse,
        error_code=ErrorCode.none,
        client_instance_id=instance.id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=_ACCEPTED_CODECS,
        push_interval=duration(instance.interval_ms),
        telemetry_max_bytes=broker.telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=tuple(instance.metrics),
    )


@on_error(71)
def subscriptions_failed(request: Request, code: ErrorCode) -> Any:
    return entity(
        response_module(request).GetTelemetrySubscriptionsResponse,
        error_code=code,
        client_instance_id=None,
        subscription_id=0,
        accepted_compression_types=(),
        push_interval=duration(0),
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=(),
    )


@api(72, 0, 0)
async def push_telemetry(request: Request, broker: Broker) -> Any:
    pushed, telemetry = request.entity, broker.telemetry
    instance = telemetry.push(request)
    if pushed.metrics and telemetry.receiver is not None:
        await telemetry.receiver.received(instance, pushed.compression_type, bytes(pushed.metrics))
    return push_failed(request, ErrorCode.none)


@on_error(72)
def push_failed(request: Request, code: ErrorCode) -> Any:
    return entity(response_module(request).PushTelemetryResponse, error_code=code)
