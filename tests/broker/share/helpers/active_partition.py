"""An active share partition without a broker: virtual time, a coordinator that records writes, no log."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_settings import Limits, ShareGroupSettings
from kafkalog_broker.share.acquisition import Acquired, Acquisition, Span
from kafkalog_broker.share.active_share_partition import ActiveSharePartition, SharePartitionServices
from kafkalog_broker.share.share_partition import SharePartition
from kafkalog_broker.share.share_state import SharePartitionKey, StateBatch
from tests.broker.groups.helpers.virtual_time import VirtualTime

KEY = SharePartitionKey("g", UUID(int=1), 0)


class RecordingCoordinator:
    """A share coordinator that records the written offsets, or fails with `failure`."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int]] = []
        self.failure: ErrorCode | None = None

    def write(
        self, key: SharePartitionKey, *, state_epoch: int, leader_epoch: int, start_offset: int,
        delivery_complete_count: int, batches: Sequence[StateBatch],
    ) -> None:  # fmt: skip
        if self.failure is not None:
            raise BrokerError(self.failure)
        self.written += [(batch.first_offset, batch.last_offset) for batch in batches]


class ActivePartition:
    """An active share partition in virtual time. `lock_ms` may be changed, like share.record.lock.duration.ms."""

    def __init__(self, lock_ms: int = 30_000) -> None:
        self.lock_ms = lock_ms
        self.time, self.coordinator, self.partition = VirtualTime(), RecordingCoordinator(), SharePartition(0)
        log = SimpleNamespace(subscribe=lambda call: None, unsubscribe=lambda call: None, name="orders-0")
        services = SharePartitionServices(
            cast(Any, self.coordinator), lambda group: self.settings, self.time, self.time.clock.monotonic_ms
        )
        self.active = ActiveSharePartition(
            KEY, cast(Any, log), self.partition, 0, 0, services, lambda active: None
        )  # fmt: skip

    @property
    def settings(self) -> ShareGroupSettings:
        return ShareGroupSettings(45_000, 5_000, 0, 200, Limits(100, 5, self.lock_ms))

    def get(self, first: int, last: int) -> list[Acquired]:
        now = self.time.clock.monotonic_ms()
        offset, spans = self.partition.next_fetch_offset(), [Span(first, last)]
        found = Acquisition(self.partition, self.settings.limits, "m", offset, spans, 50, 500, now).acquire()
        self.active.arm_lock_timer()
        return found
