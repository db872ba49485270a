"""Handlers that keep to the quotas: they take the place of the others while there are any.

As in Kafka a request is handled first, and then its client has to wait: the answer, which comes at once, says how long,
and the connection is muted for that time (KIP-219). Fetch looks for itself whether its answer may be sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Api, Request
from kafkalog_broker.protocol.codec import with_throttle_time
from kafkalog_broker.quotas.client_quotas import MUTATION, PRODUCER, REQUEST, Client, ClientQuotas
from kafkalog_broker.runtime.fair_scheduling import timed

# controller_mutation_rate (KIP-599): a topic is charged for partitions that are made and removed once its name, the
# rights and all else were checked, as in ReplicationControlManager: what is refused for another reason costs nothing,
# and the quota gives nothing away.

STRICT_FROM: Mapping[int, int] = {19: 6, 20: 5, 37: 3}
"""CreateTopics, DeleteTopics, CreatePartitions: the first version whose clients know THROTTLING_QUOTA_EXCEEDED and are
refused what goes beyond, topic by topic; others are served, and wait."""

PRODUCE = 0
UNTHROTTLED = frozenset({17, 36})  # SaslHandshake and SaslAuthenticate: it is not known yet who asks


def throttled(quotas: ClientQuotas, api: Api) -> Api:
    return api if api.key in UNTHROTTLED else replace(api, handler=partial(_handle, quotas, api))


def _handle(quotas: ClientQuotas, api: Api, request: Request, broker: Any) -> Any:
    """Result of the handler, without a coroutine for clients that have no quota."""
    if quotas.limits(request.connection.principal, request.client_id):
        return _handle_limited(quotas, api, request, broker)
    return api.handler(request, broker)


async def _handle_limited(quotas: ClientQuotas, api: Api, request: Request, broker: Any) -> Any:
    client = Client.of_request(request)
    wait_ms = 0
    mutates = api.key in STRICT_FROM and MUTATION in quotas.in_use
    if mutates:
        request.charge = partial(_charge, quotas, client, request.version >= STRICT_FROM[api.key])
    handled = api.handled(request, broker)
    if REQUEST in quotas.in_use:
        spent: list[float] = []
        response = await timed(handled, spent.append)
        if response is not None:  # without an answer nobody can be told to wait: as in Kafka such requests are free
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


def _charge(quotas: ClientQuotas, client: Client, refuses: bool, partitions: int) -> None:
    if not quotas.mutate(client, partitions, refuses=refuses):
        raise BrokerError(ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")
