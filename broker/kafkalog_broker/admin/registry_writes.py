"""Changes to many topics in one write of the topic registry."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.topic_registry import Outcome

Items = TypeVar("Items", bound=Collection[Any])


async def write_registry(broker: Broker, change: Callable[[Items], list[Outcome]], items: Items) -> list[Outcome]:
    """Run a method of the topic registry that changes many topics, in a thread.

    Returns:
        The changed topic or the error of each item, in order. If the registry cannot be written, each item has that
        error.
    """
    try:
        return await broker.run_blocking(change, items)
    except BrokerError as error:
        return [error] * len(items)
