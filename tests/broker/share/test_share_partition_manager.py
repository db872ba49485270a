"""Loading share partitions, with changes while the reset offset is looked up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_settings import share_group_settings
from kafkalog_broker.share.share_coordinator import ShareCoordinator
from kafkalog_broker.share.share_partition_manager import SharePartitionManager
from kafkalog_broker.share.share_state import NO_START_OFFSET
from tests.broker.manual_clock import ManualClock
from tests.broker.share.test_share_coordinator import KEY, Topic, coordinator

BY_DURATION = {"share.auto.offset.reset": "by_duration:PT1H"}


def manager(share_coordinator: ShareCoordinator, meanwhile: Callable[[Any], None]) -> SharePartitionManager:
    """For a log whose record at the time is 3. meanwhile: called with the log during the look-up of that."""
    log: Any = SimpleNamespace(
        leader_epoch=0, high_watermark=9, is_closed=False, subscribe=lambda call: None,
        search_segments=lambda search: SimpleNamespace(offset=3),
    )  # fmt: skip

    def log_of(topic_id: object, partition: int) -> Any:
        if log.is_closed:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, "it is deleted")
        return log

    async def run_blocking(call: Callable[[Any, int], Any], log: Any, timestamp: int) -> Any:
        await asyncio.sleep(0)
        meanwhile(log)
        return call(log, timestamp)

    settings = share_group_settings(BrokerConfig.from_properties({"log.dirs": "/x"}), BY_DURATION)
    scheduler: Any = None  # no lock is taken
    return SharePartitionManager(
        9, share_coordinator, log_of, lambda group_id: settings, ManualClock(), scheduler, run_blocking
    )


def test_load_fails_if_the_topic_is_deleted_meanwhile() -> None:
    share_coordinator = coordinator(Topic())
    share_coordinator.initialize(KEY, 1, NO_START_OFFSET)
    made = manager(share_coordinator, lambda log: setattr(log, "is_closed", True))
    with pytest.raises(BrokerError) as refused:
        asyncio.run(made.load(KEY))
    assert refused.value.code is ErrorCode.unknown_topic_or_partition
    assert not made.active_partitions()


def test_load_uses_the_state_that_was_initialized_meanwhile() -> None:
    share_coordinator = coordinator(Topic())
    share_coordinator.initialize(KEY, 1, NO_START_OFFSET)
    made = manager(share_coordinator, lambda log: share_coordinator.initialize(KEY, 2, 7))
    active = asyncio.run(made.load(KEY))
    assert active.partition.start_offset == 7
    assert (active.state_epoch, active.leader_epoch) == (2, 0)


def test_load_without_start_offset_begins_at_the_reset_offset() -> None:
    share_coordinator = coordinator(Topic())
    share_coordinator.initialize(KEY, 1, NO_START_OFFSET)
    assert asyncio.run(manager(share_coordinator, lambda log: None).load(KEY)).partition.start_offset == 3
