"""Handlers that enforce client quotas. They wrap the handlers of all APIs while any quota exists.

As in Kafka a request is handled first. The response, which is sent immediately, contains the throttle time, and the
connection is muted for that time (KIP-219). Fetch checks its own quota, because a throttled response has no records.

controller_mutation_rate (KIP-599): as in ReplicationControlManager, a topic is charged only after all other checks, so
that a request with another error is not charged, and the quota error does not disclose whether a topic exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import with_throttle_time
from kafkalog_broker.quotas.client_quotas import Client, ClientQuotas
from kafkalog_broker.quotas.quota_entity import MUTATION, PRODUCER, REQUEST
from kafkalog_broker.runtime.step_timing import timed

STRICT_FROM: Mapping[int, int] = {19: 6, 20: 5, 37: 3}
"""CreateTopics, DeleteTopics and CreatePartitions: first version whose clients know THROTTLING_QUOTA_EXCEEDED. Topics
beyond the quota are refused for them; older clients are served and throttled."""

PRODUCE = 0
UNTHROTTLED = frozenset({17, 36})  # SaslHandshake and SaslAuthenticate: the sender is not known yet


def throttled(quotas: ClientQuotas, api: Api) -> Api:
    """Return `api` with a handler that enforces the quotas."""
    return api if api.key in UNTHROTTLED else replace(api, handler=partial(_handle, quotas, api))


def _handle(quotas: ClientQuotas, api: Api, request: Request, broker: Any) -> Any:
    """Handle a request; without an additional coroutine if no quota applies to the client."""
    if quotas.has_any(request.connection.principal, request.client_id):
        return _handle_limited(quotas, api, request, broker)
    return api.handler(request, broker)


async def _handle_limited(quotas: ClientQuotas, api: Api, request: Request, broker: Any) -> Any:
    client = Client.of_request(request)
    wait_ms = 0
    mutates = api.key in STRICT_FROM and MUTATION in quotas.in_use
    if mutates:
        may_refuse = request.version >= STRICT_FROM[api.key]
        request.charge = partial(_charge_mutation, quotas, client, may_refuse=may_refuse)
    handled = _response_or_error(api, request, broker)
    if REQUEST in quotas.in_use:
        spent: list[float] = []
        response = await timed(handled, spent.append)
        if response is not None:  # without a response there is no throttle time to send: as in Kafka it is not recorded
            wait_ms = quotas.record(REQUEST, client, sum(spent) * 100)
    else:
        response = await handled
    if api.key == PRODUCE:
        wait_ms = max(wait_ms, quotas.record(PRODUCER, client, request.size))
    if mutates:
        wait_ms = max(wait_ms, quotas.mutation_wait_ms(client))
    if not wait_ms:
        return response
    request.connection.mute(wait_ms / 1000)
    return None if response is None else with_throttle_time(response, wait_ms)


async def _response_or_error(api: Api, request: Request, broker: Any) -> Any:
    """Handle a request. A request that fails as a whole is recorded and throttled too (KafkaApis.handleError)."""
    try:
        return await api.respond(request, broker)
    except BrokerError as error:
        response = await api.respond_to_error(request, error.code)
        if response is None:
            raise
        return response


def _charge_mutation(quotas: ClientQuotas, client: Client, partitions: int, *, may_refuse: bool) -> None:
    if not quotas.charge_mutation(client, partitions, may_refuse=may_refuse):
        raise BrokerError(ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")
