"""Changes to many topics in one write of the topic registry."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.topic_registry import Outcome

T = TypeVar("T", bound="Collection[object]")


async def write_registry(broker: Broker, change: Callable[[T], list[Outcome]], items: T) -> list[Outcome]:
    """Run a method of the topic registry in a thread.

    Returns:
        The changed topic or the error of each item, in order. If the registry cannot be written, all have that error.
    """
    try:
        return await broker.run_blocking(change, items)
    except BrokerError as error:
        return [error] * len(items)
