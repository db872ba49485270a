"""Metrics that clients push (KIP-714).

71 GetTelemetrySubscriptions, version 0: names of the metrics that a client should push, and the interval.
72 PushTelemetry, version 0: metrics of a client in OpenTelemetry's format.

ApiVersions lists both only while the broker serves metrics, like a Kafka broker with a receiver for client metrics.
Requests of clients that do not check ApiVersions are served in any case.
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_spark.format.layout import Codec

_ACCEPTED_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)  # in Kafka's order of preference


@api(71, 0, 0)
def get_telemetry_subscriptions(request: Request, broker: Broker) -> Any:
    instance = broker.telemetry.get(request)
    return build_response(
        request,
        client_instance_id=instance.id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=_ACCEPTED_CODECS,
        push_interval=instance.interval_ms,
        telemetry_max_bytes=broker.telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=tuple(instance.metrics),
    )


@api(72, 0, 0)
async def push_telemetry(request: Request, broker: Broker) -> Any:
    body = request.entity
    telemetry = broker.telemetry
    instance = telemetry.push(request)
    if body.metrics and telemetry.receiver is not None:
        await telemetry.receiver.receive(instance, body.compression_type, bytes(body.metrics))
    return build_response(request)
