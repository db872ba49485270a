"""A partition of __consumer_offsets with a damaged batch."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from tests.broker.groups.helpers.virtual_time import World


def test_groups_are_served_after_the_topic_with_a_damaged_partition_was_deleted() -> None:
    world = World()
    world.stable(1)
    batches = world.log.batches[0]
    batches[0] = batches[0][:-1] + bytes([batches[0][-1] ^ 1])
    world.coordinator.close_all()
    with pytest.raises(BrokerError, match="cannot be loaded") as refused:
        world.coordinator.shard("g")
    assert refused.value.code is ErrorCode.not_coordinator

    batches.clear()
    world.coordinator.close_all()
    assert world.coordinator.shard("g").list_groups() == []
