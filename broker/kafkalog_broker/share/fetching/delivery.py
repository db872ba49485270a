"""A share partition in use: its records in flight, its log, and the members that wait for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from kafkalog_broker.clock import Clock
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.share.group_settings import GroupSettings
from kafkalog_broker.share.partition.change import Change, expire
from kafkalog_broker.share.partition.share_partition import NEVER, SharePartition
from kafkalog_broker.share.state.share_coordinator import ShareCoordinator
from kafkalog_broker.share.state.state_records import SharePartitionKey
from kafkalog_broker.share.state.state_shard import WriteState
from kafkalog_broker.storage.partition.log import Log

_log = logging.getLogger(__name__)


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


Scheduler = Callable[[int, Callable[[], None]], TimerHandle]


class Waiter(Protocol):
    """A request that waits."""

    @property
    def is_awake(self) -> bool: ...

    def wake(self) -> None: ...


class Delivery:
    """on_gone: called when it must be loaded anew, or is over."""

    def __init__(
        self,
        key: SharePartitionKey,
        log: Log,
        partition: SharePartition,
        epochs: tuple[int, int],
        coordinator: ShareCoordinator,
        settings_of: Callable[[str], GroupSettings],
        clock: Clock,
        scheduler: Scheduler,
        on_gone: Callable[[Delivery], None],
    ) -> None:
        """epochs: of state and leader."""
        self.key = key
        self.log = log
        self.partition = partition
        self._state_epoch, self._leader_epoch = epochs
        self._coordinator = coordinator
        self._settings_of = settings_of
        self._clock = clock
        self._scheduler = scheduler
        self._on_gone = on_gone
        self._waiting: dict[Waiter, int] = {}
        self._event = 0
        """Counts what may let somebody get something. Who waits is woken one at a time, the longest waiting first, and
        not twice for the same event."""
        self._timer: TimerHandle | None = None
        self._looks_at = NEVER
        """When the timer ends."""
        self.is_over = False
        log.subscribe(self._log_moved)

    @property
    def settings(self) -> GroupSettings:
        return self._settings_of(self.key.group_id)

    def close(self) -> None:
        """It is not used any more; who waits looks again."""
        self.is_over = True
        self.log.unsubscribe(self._log_moved)
        if self._timer is not None:
            self._timer.cancel()
        for waiter in list(self._waiting):
            waiter.wake()

    # who waits

    def wait(self, waiter: Waiter) -> None:
        """The waiter has looked, and got nothing."""
        self._waiting[waiter] = self._event

    def forget(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)

    def notify(self) -> None:
        """Something may be there for somebody."""
        self._event += 1
        self.pass_on()

    def pass_on(self) -> None:
        """Let the next one look who has not seen what happened last."""
        if not self._waiting or not self.partition.can_acquire(self.settings.limits):
            return
        for waiter, seen in self._waiting.items():
            if seen < self._event and not waiter.is_awake:
                waiter.wake()
                return

    def _log_moved(self) -> None:
        if self.log.is_closed or self.log.failure is not None:
            self._on_gone(self)
        else:
            self.notify()

    # what becomes of records

    def write(self, change: Change) -> None:
        """Let it count, once it is written. Raises BrokerError, and then it does not."""
        if change.batches:
            partition = self.partition
            try:
                self._coordinator.write(
                    self.key,
                    WriteState(
                        self._state_epoch, self._leader_epoch, partition.start_offset, partition.complete,
                        change.batches,
                    ),
                )  # fmt: skip
            except BrokerError as error:
                change.undo()
                raise self.as_seen_by_members(error) from error
            if change.done():
                self.notify()
        self.watch_locks()

    def as_seen_by_members(self, error: BrokerError) -> BrokerError:
        """What a member is answered when the share coordinator refuses (SharePartition.fetchPersisterError)."""
        seen = member_error(error)
        if seen.code in _MUST_BE_LOADED_ANEW:
            self._on_gone(self)
        return seen

    def watch_locks(self) -> None:
        """Locks may have been given: look when the first of them ends, also where it ends before those that were given
        earlier (the lock duration was lowered)."""
        if self.partition.next_deadline < self._looks_at and not self.is_over:
            self._look_at(self.partition.next_deadline)

    def _look_at(self, deadline: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = deadline
        self._timer = self._scheduler(max(0, deadline - self._clock.monotonic_ms()), self._locks_end)

    def _locks_end(self) -> None:
        self._timer, self._looks_at = None, NEVER
        change = expire(self.partition, self._clock.monotonic_ms(), self.settings.limits)
        try:
            self.write(change)
        except BrokerError as error:
            _log.warning("%s: locks that ended could not be written: %s", self.key, error)
            if not self.is_over:
                self._look_at(self._clock.monotonic_ms() + _RETRY_MS)


_RETRY_MS = 1000

_MUST_BE_LOADED_ANEW = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_state_epoch,
        ErrorCode.group_id_not_found,
        ErrorCode.unknown_topic_or_partition,
    }
)
_AS_SEEN = {
    ErrorCode.not_coordinator: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_not_available: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress: ErrorCode.coordinator_not_available,
    ErrorCode.group_id_not_found: ErrorCode.group_id_not_found,
    ErrorCode.unknown_topic_or_partition: ErrorCode.unknown_topic_or_partition,
    ErrorCode.fenced_leader_epoch: ErrorCode.not_leader_or_follower,
    ErrorCode.fenced_state_epoch: ErrorCode.not_leader_or_follower,
}


def member_error(error: BrokerError) -> BrokerError:
    """An error of the share coordinator as members see it."""
    return BrokerError(_AS_SEEN.get(error.code, ErrorCode.unknown_server_error), error.what)
