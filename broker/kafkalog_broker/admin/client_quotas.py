"""Put altered client quotas into effect."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from itertools import islice

from kafkalog_broker.broker import Broker
from kafkalog_broker.protocol.served_apis import Layer
from kafkalog_broker.quotas.quota_entity import Entity, Quotas
from kafkalog_broker.quotas.throttling import throttled
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

_log = logging.getLogger(__name__)
_LOGGED_ENTITIES = 30  # in one log line


async def apply_quotas(
    broker: Broker, quotas: Quotas, changed: Mapping[Entity, dict[str, float]], time_slice: TimeSlice
) -> None:
    """Save quotas and put the changed ones into effect.

    Args:
        broker: Owner of the quotas.
        quotas: All quotas, with the changed ones.
        changed: New quotas of each changed entity.
        time_slice: Time slice of the request.

    Raises:
        BrokerError: KAFKA_STORAGE_ERROR if the quotas cannot be saved; then none takes effect.
    """
    await broker.save("quotas", broker.quota_file.save, quotas)
    async for entity, values in time_slice.spread(changed.items()):
        broker.quotas.change(entity, values)
    install_quota_handlers(broker)
    first = [entity.named() for entity in islice(changed, _LOGGED_ENTITIES)]
    _log.info("the quotas of %d entities are changed: %.1000r", len(changed), first)


def install_quota_handlers(broker: Broker) -> None:
    """Wrap all handlers so that they enforce quotas. Remove the wrappers if there are no quotas."""
    broker.apis.set_layer(Layer.QUOTAS, partial(throttled, broker.quotas) if broker.quotas.in_use else None)
