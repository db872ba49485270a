"""The quota consumer_byte_rate in Fetch and ShareFetch (Kafka: ClientQuotaManager in KafkaApis)."""

from __future__ import annotations

from kafkalog_broker.protocol.request import Request
from kafkalog_broker.quotas.client_quotas import Client, ClientQuotas


def limit_bytes(quotas: ClientQuotas, request: Request, max_bytes: int) -> int:
    """Return the limit on the bytes of records in a response: `max_bytes`, or less if the quota allows less."""
    if not quotas.in_use:
        return max_bytes
    return min(max_bytes, quotas.fetch_bytes(Client.of_request(request)) or max_bytes)


def throttle(quotas: ClientQuotas, request: Request, size: int) -> int:
    """Record a response with `size` bytes of records.

    Returns:
        Milliseconds for which the client is throttled and its connection muted; 0 if the quota is not exceeded.
    """
    if not (quotas.in_use and size):
        return 0
    throttle_ms = quotas.record_fetch(Client.of_request(request), size)
    if throttle_ms:
        request.connection.mute(throttle_ms / 1000)
    return throttle_ms
