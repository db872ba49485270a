"""A loaded share partition: its records in flight, its log, its lock timer and the fetches that wait for records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kafkalog_broker.coordinator.coordinator_timer import Scheduler, TimerHandle
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.groups.modern.group_settings import ShareGroupSettings
from kafkalog_broker.share.lock_release import release_expired, release_member
from kafkalog_broker.share.persister_errors import means_stale_state, member_error
from kafkalog_broker.share.share_coordinator import ShareCoordinator
from kafkalog_broker.share.share_partition import NEVER, SharePartition
from kafkalog_broker.share.share_state import SharePartitionKey
from kafkalog_broker.share.state_change import StateChange
from kafkalog_broker.storage.partition.log import Log

_log = logging.getLogger(__name__)

_RETRY_MS = 1000  # delay after expired locks could not be persisted


@dataclass(frozen=True, slots=True)
class SharePartitionServices:
    """Dependencies of all active share partitions."""

    coordinator: ShareCoordinator
    settings_of: Callable[[str], ShareGroupSettings]
    scheduler: Scheduler
    now_ms: Callable[[], int]


class ActiveSharePartition:
    """A loaded share partition. Not thread-safe; call from the event loop.

    A fetch without records clears its asyncio.Event, parks it here and waits for it. `is_closed` becomes true when the
    share partition is dropped; a waiting fetch is woken then, and loads the share partition again.
    """

    def __init__(
        self, key: SharePartitionKey, log: Log, partition: SharePartition, state_epoch: int, leader_epoch: int,
        services: SharePartitionServices, drop: Callable[[ActiveSharePartition], None],
    ) -> None:  # fmt: skip
        """Create an open share partition.

        Args:
            state_epoch, leader_epoch: Epochs with which the state was read. Changes are written with them.
            drop: Called when the share partition must not be used any more. Must call `close`.
        """
        self.key = key
        self.log = log
        self.partition = partition
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.is_closed = False
        self._services = services
        self._drop = drop
        self._parked: dict[asyncio.Event, int] = {}  # longest wait first; value of _changes when parked
        self._changes = 0  # number of changes that may have made records available
        self._timer: TimerHandle | None = None
        self._timer_deadline = NEVER
        log.subscribe(self._log_changed)

    @property
    def settings(self) -> ShareGroupSettings:
        return self._services.settings_of(self.key.group_id)

    def close(self) -> None:
        """Stop the timer, and wake all parked fetches."""
        self.is_closed = True
        self.log.unsubscribe(self._log_changed)
        if self._timer is not None:
            self._timer.cancel()
        for wakeup in list(self._parked):
            wakeup.set()

    def park(self, wakeup: asyncio.Event) -> None:
        """Set `wakeup` after a later change, for a fetch that could not acquire records."""
        self._parked[wakeup] = self._changes

    def unpark(self, wakeup: asyncio.Event) -> None:
        """Remove the event of a fetch that does not wait any more. No-op if it is not parked."""
        self._parked.pop(wakeup, None)

    def notify_change(self) -> None:
        """Count a change that may have made records available, and wake one fetch."""
        self._changes += 1
        self.wake_next()

    def wake_next(self) -> None:
        """Wake the fetch with the longest wait that was parked before the latest change, if records can be acquired."""
        if not self._parked or not self.partition.can_acquire(self.settings.limits):
            return
        for wakeup, changes_seen in self._parked.items():
            if changes_seen < self._changes and not wakeup.is_set():
                wakeup.set()
                return

    def _log_changed(self) -> None:
        if self.log.is_closed or self.log.failure is not None:
            self._drop(self)
        else:
            self.notify_change()

    def persist(self, change: StateChange) -> None:
        """Persist a change and commit it.

        Raises:
            BrokerError: The error for the member, if the change cannot be persisted. It is rolled back then.
        """
        if change.batches:
            try:
                self._services.coordinator.write(
                    self.key,
                    state_epoch=self.state_epoch,
                    leader_epoch=self.leader_epoch,
                    start_offset=self.partition.start_offset,
                    delivery_complete_count=self.partition.delivery_complete_count,
                    batches=change.batches,
                )
            except BrokerError as coordinator_error:
                change.rollback()
                error = member_error(coordinator_error)
                if means_stale_state(error):
                    self._drop(self)
                raise error from coordinator_error
            if change.commit():
                self.notify_change()
        self.arm_lock_timer()

    def release(self, member_id: str) -> None:
        """Release all records of a member whose session has ended. If this cannot be persisted, the locks expire."""
        with suppress(BrokerError):
            self.persist(release_member(self.partition, member_id, self.settings.limits))
        self.notify_change()

    def arm_lock_timer(self) -> None:
        """Set the timer to the earliest lock deadline. If the lock duration of the group was reduced, a newer lock can
        expire before earlier locks."""
        if self.partition.next_lock_deadline < self._timer_deadline and not self.is_closed:
            self._start_timer(self.partition.next_lock_deadline)

    def _start_timer(self, deadline: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_deadline = deadline
        delay_ms = max(0, deadline - self._services.now_ms())
        self._timer = self._services.scheduler(delay_ms, self._expire_locks)

    def _expire_locks(self) -> None:
        self._timer, self._timer_deadline = None, NEVER
        now_ms = self._services.now_ms()
        change = release_expired(self.partition, now_ms, self.settings.limits)
        try:
            self.persist(change)
        except BrokerError as error:
            _log.warning("%s: expired acquisition locks could not be persisted: %s", self.key, error)
            if not self.is_closed:
                self._start_timer(self._services.now_ms() + _RETRY_MS)
