"""Charge topic changes to the controller mutation quota (KIP-599)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

Charge = Callable[[int], None]
"""Function that charges the partitions that a topic is about to gain or lose. Call it after all other checks.

Raises:
    BrokerError: THROTTLING_QUOTA_EXCEEDED if the client's quota is used up; do not change the topic then.
"""


def free_of_charge(partitions: int) -> None:
    """Do nothing: the Charge of changes by the broker itself, and of all clients if there are no quotas."""


async def charge_each(charge: Charge, partitions_by_topic: Mapping[str, int]) -> Mapping[str, BrokerError]:
    """Charge each topic and return the error of those that exceed the quota."""
    errors: dict[str, BrokerError] = {}
    async for name, partitions in TimeSlice().spread(partitions_by_topic.items()):
        try:
            charge(partitions)
        except BrokerError as error:
            errors[name] = error
    return errors
