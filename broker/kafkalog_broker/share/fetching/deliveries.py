"""The share partitions in use (Kafka's SharePartitionManager and its cache): loaded at the first fetch of a group."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Protocol
from uuid import UUID

from kafkalog_broker.config.group_properties import EARLIEST
from kafkalog_broker.coordinator.runtime import Scheduler, TimerHandle
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_context import ShareGroupSettings
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.share.fetching.share_sessions import SessionKey, ShareSession, ShareSessions
from kafkalog_broker.share.partition.acquisition import Acknowledgement, Change, acknowledge, expire, release
from kafkalog_broker.share.partition.share_partition import NEVER, SharePartition
from kafkalog_broker.share.state.share_coordinator import ShareCoordinator
from kafkalog_broker.share.state.state_records import NO_START_OFFSET, SharePartitionKey
from kafkalog_broker.share.state.state_shard import WriteState
from kafkalog_broker.storage.partition.log import Log

# A share partition in use: its records in flight, its log, and the members that wait for it.

_log = logging.getLogger(__name__)


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
        settings_of: Callable[[str], ShareGroupSettings],
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
    def settings(self) -> ShareGroupSettings:
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
        """Error for the member where the share coordinator refuses (SharePartition.fetchPersisterError)."""
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


RunBlocking = Callable[..., Awaitable[Any]]
OnClose = Callable[[Callable[[], None]], object]
LogOf = Callable[[UUID, int], Log]
"""The log of a partition by topic id. Raises BrokerError."""


class Deliveries:
    """sessions: of all members."""

    def __init__(
        self,
        slots: int,
        coordinator: ShareCoordinator,
        log_of: LogOf,
        settings_of: Callable[[str], ShareGroupSettings],
        clock: Clock,
        scheduler: Scheduler,
        run_blocking: RunBlocking,
    ) -> None:
        self.sessions = ShareSessions(slots)
        self._coordinator = coordinator
        self._log_of = log_of
        self._settings_of = settings_of
        self._clock = clock
        self._scheduler = scheduler
        self._run_blocking = run_blocking
        self._deliveries: dict[SharePartitionKey, Delivery] = {}
        self._connections: dict[int, dict[SessionKey, ShareSession]] = {}

    def __len__(self) -> int:
        return len(self._deliveries)

    def in_use(self) -> Iterable[Delivery]:
        return self._deliveries.values()

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        return self._settings_of(group_id)

    def now(self) -> int:
        return self._clock.monotonic_ms()

    def find(self, key: SharePartitionKey) -> Delivery | None:
        return self._deliveries.get(key)

    async def opened(self, key: SharePartitionKey) -> Delivery:
        """Loaded, when it is not in use. Raises BrokerError."""
        found = self._deliveries.get(key)
        if found is not None:
            return found
        log = self._log_of(key.topic_id, key.partition)
        try:
            state = self._coordinator.read(key, log.leader_epoch)
        except BrokerError as error:
            raise member_error(error) from error
        start = state.start_offset
        if start == NO_START_OFFSET:
            start = await self._first_offset(key.group_id, log)
            found = self._deliveries.get(key)
            if found is not None:  # another member's request was first
                return found
        delivery = Delivery(
            key, log, SharePartition(start, state.batches), (state.state_epoch, log.leader_epoch), self._coordinator,
            self._settings_of, self._clock, self._scheduler, self._gone,
        )  # fmt: skip
        self._deliveries[key] = delivery
        return delivery

    async def _first_offset(self, group_id: str, log: Log) -> int:
        """Where delivery begins when nothing is known (share.auto.offset.reset)."""
        settings = self._settings_of(group_id)
        if settings.auto_offset_reset == EARLIEST:
            return log.log_start_offset
        duration = settings.reset_duration_ms
        if duration is not None:
            found = await self._run_blocking(log.offset_for_timestamp, self._clock.now_ms() - duration)
            if found is not None:
                return int(found.offset)
        return log.high_watermark

    def _gone(self, delivery: Delivery) -> None:
        if self._deliveries.get(delivery.key) is delivery:
            del self._deliveries[delivery.key]
            delivery.close()

    # what members say

    def acknowledge(self, key: SharePartitionKey, member_id: str, batches: Sequence[Acknowledgement]) -> None:
        """Raises BrokerError, and then nothing of it counts."""
        delivery = self._deliveries.get(key)
        if delivery is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
        change = acknowledge(delivery.partition, member_id, batches, self.now(), delivery.settings.limits)
        delivery.write(change)

    def end_session(self, key: SessionKey) -> None:
        """End a session and release its records. Raises BrokerError share_session_not_found."""
        session = self.sessions.get(key)
        self.sessions.remove(key)
        self._release(session)

    def connected(self, connection: int, on_close: OnClose, session: ShareSession) -> None:
        """A session began over this connection, and ends with it. on_close: calls back once when it is gone."""
        sessions = self._connections.get(connection)
        if sessions is None:
            sessions = self._connections[connection] = {}
            on_close(lambda: self._disconnected(connection))
        for key in [key for key, one in sessions.items() if not self.sessions.is_current(one)]:
            del sessions[key]
            self._forget_if_alone(key.group_id)
        sessions[session.key] = session

    def _disconnected(self, connection: int) -> None:
        """Groups without any session are forgotten until they fetch again."""
        sessions = self._connections.pop(connection, {})
        for session in sessions.values():
            if self.sessions.is_current(session):
                self.end_session(session.key)
        for group_id in {key.group_id for key in sessions}:
            self._forget_if_alone(group_id)

    def _forget_if_alone(self, group_id: str) -> None:
        if not self.sessions.has_members(group_id):
            self.forget_group(group_id)

    def forget_group(self, group_id: str) -> None:
        for delivery in [one for key, one in self._deliveries.items() if key.group_id == group_id]:
            self._gone(delivery)

    def forget_topics(self, topics: Collection[UUID]) -> None:
        """They are deleted."""
        for delivery in [one for key, one in self._deliveries.items() if key.topic_id in topics]:
            self._gone(delivery)

    def _release(self, session: ShareSession) -> None:
        for topic_id, index in session.partitions:
            delivery = self._deliveries.get(SharePartitionKey(session.key.group_id, topic_id, index))
            if delivery is None:
                continue
            try:
                delivery.write(release(delivery.partition, session.key.member_id, delivery.settings.limits))
            except BrokerError:
                pass  # the locks end by themselves
            delivery.notify()
