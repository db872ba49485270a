"""The share partitions in use (Kafka's SharePartitionManager and its cache): loaded at the first fetch of a group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.config.group_properties import EARLIEST, reset_duration_ms
from kafkalog_broker.coordinator.coordinator_timer import Scheduler, TimerHandle
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_settings import ShareGroupSettings
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.share.share_coordinator import ShareCoordinator
from kafkalog_broker.share.share_partition import NEVER, Acknowledgement, SharePartition, StateChange
from kafkalog_broker.share.state_records import NO_START_OFFSET, SharePartitionKey, ShareState
from kafkalog_broker.storage.partition.log import Log

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_LAST_EPOCH = 2**31 - 1
MAX_PARTITIONS = 100_000
"""Partitions that all sessions together remember, of some 200 bytes each. Kafka bounds only the number of sessions; a
member may name any number of partitions, also such as there are not."""


# ---- share sessions (KIP-932): which partitions a member fetches, remembered between its requests (ShareSessionCache)
#
# A session belongs to a connection and ends with it. Its epoch counts the requests: 0 begins one, -1 ends it.


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


Partition = tuple[UUID, int]  # topic id and partition


@dataclass(slots=True, eq=False)
class ShareSession:
    """partitions: and whether the next answer has to name them, whatever there is to say."""

    key: SessionKey
    partitions: dict[Partition, bool]
    epoch: int = 1


class ShareSessions:
    """At most `slots` of them (group.share.max.share.sessions)."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise BrokerError(ErrorCode.share_session_not_found, "The share session was not found.")
        return session

    def begin(self, key: SessionKey, partitions: Iterable[Partition]) -> ShareSession:
        """In the place of the one before. Raises BrokerError share_session_limit_reached."""
        self.remove(key)
        if len(self._sessions) >= self._slots:
            raise BrokerError(ErrorCode.share_session_limit_reached, "The limit of share sessions has been reached.")
        session = self._sessions[key] = ShareSession(key, dict.fromkeys(partitions, False))
        self._check_room(session)
        return session

    def update(self, session: ShareSession, added: Iterable[Partition], forgotten: Iterable[Partition]) -> None:
        """Raises BrokerError share_session_limit_reached, and then the session is over."""
        before = len(session.partitions)
        for partition in added:
            session.partitions.setdefault(partition, True)
        for partition in forgotten:
            session.partitions.pop(partition, None)
        if len(session.partitions) > before:
            self._check_room(session)

    def _check_room(self, session: ShareSession) -> None:
        if sum(len(each.partitions) for each in self._sessions.values()) > MAX_PARTITIONS:
            self.remove(session.key)
            what = f"Share sessions remember {MAX_PARTITIONS} partitions at most, all together."
            raise BrokerError(ErrorCode.share_session_limit_reached, what)

    def next_request(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session of a request that is neither its first nor its last. Raises BrokerError:
        share_session_not_found, invalid_share_session_epoch."""
        session = self.get(key)
        if session.epoch != epoch:
            raise BrokerError(
                ErrorCode.invalid_share_session_epoch, f"share session epoch {epoch}, expected {session.epoch}"
            )
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def remove(self, key: SessionKey) -> None:
        self._sessions.pop(key, None)

    def is_current(self, session: ShareSession) -> bool:
        return self._sessions.get(session.key) is session

    def has_members(self, group_id: str) -> bool:
        return any(key.group_id == group_id for key in self._sessions)


_log = logging.getLogger(__name__)

_RETRY_MS = 1000
_MUST_BE_LOADED_ANEW = frozenset(
    {ErrorCode.not_leader_or_follower, ErrorCode.group_id_not_found, ErrorCode.unknown_topic_or_partition}
)
"""Errors, as members see them, after which a share partition is not used any more."""
_MEMBER_ERRORS = {
    ErrorCode.not_coordinator: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_not_available: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress: ErrorCode.coordinator_not_available,
    ErrorCode.group_id_not_found: ErrorCode.group_id_not_found,
    ErrorCode.unknown_topic_or_partition: ErrorCode.unknown_topic_or_partition,
    ErrorCode.fenced_leader_epoch: ErrorCode.not_leader_or_follower,
    ErrorCode.fenced_state_epoch: ErrorCode.not_leader_or_follower,
}


def _member_error(error: BrokerError) -> BrokerError:
    """An error of the share coordinator as members see it (SharePartition.fetchPersisterError)."""
    return BrokerError(_MEMBER_ERRORS.get(error.code, ErrorCode.unknown_server_error), error.what)


class ActiveSharePartition:
    """A share partition in use: records in flight, log, and waiting requests: events, set while they do not wait."""

    def __init__(
        self, manager: SharePartitionManager, key: SharePartitionKey, log: Log, partition: SharePartition,
        epochs: tuple[int, int],
    ) -> None:  # fmt: skip
        """epochs: of state and leader."""
        self.key = key
        self.log = log
        self.partition = partition
        self._manager = manager
        self._epochs = epochs
        self._waiting: dict[asyncio.Event, int] = {}
        self._changes = 0
        """Counts what may let somebody get something; wakes the longest waiting, one at a time, once for a change."""
        self._timer: TimerHandle | None = None
        self._timer_ends = NEVER
        self.is_over = False
        log.subscribe(self._log_moved)

    @property
    def settings(self) -> ShareGroupSettings:
        return self._manager.settings_of(self.key.group_id)

    def close(self) -> None:
        """It is not used any more; who waits looks again."""
        self.is_over = True
        self.log.unsubscribe(self._log_moved)
        if self._timer is not None:
            self._timer.cancel()
        for request in list(self._waiting):
            request.set()

    # who waits

    def wait(self, request: asyncio.Event) -> None:
        """The request has looked, and got nothing."""
        self._waiting[request] = self._changes

    def forget(self, request: asyncio.Event) -> None:
        self._waiting.pop(request, None)

    def notify(self) -> None:
        """Something may be there for somebody."""
        self._changes += 1
        self.wake_next()

    def wake_next(self) -> None:
        """Let the next one look who has not seen what happened last."""
        if not self._waiting or not self.partition.can_acquire(self.settings.limits):
            return
        for request, seen in self._waiting.items():
            if seen < self._changes and not request.is_set():
                request.set()
                return

    def _log_moved(self) -> None:
        if self.log.is_closed or self.log.failure is not None:
            self._manager.forget(self)
        else:
            self.notify()

    # what becomes of records

    def write(self, change: StateChange) -> None:
        """Let it count, once it is written. Raises BrokerError, and then it does not."""
        if change.batches:
            try:
                self._manager.coordinator.write(
                    self.key, *self._epochs, self.partition.start_offset, self.partition.complete, change.batches
                )
            except BrokerError as error:
                change.undo()
                seen = _member_error(error)
                if seen.code in _MUST_BE_LOADED_ANEW:
                    self._manager.forget(self)
                raise seen from error
            if change.done():
                self.notify()
        self.watch_locks()

    def release(self, member_id: str) -> None:
        with suppress(BrokerError):  # then the locks end by themselves
            self.write(self.partition.release(member_id, self.settings.limits))
        self.notify()

    def watch_locks(self) -> None:
        """Watch the first end of a lock, which a lowered lock duration may put before those of earlier locks."""
        if self.partition.next_deadline < self._timer_ends and not self.is_over:
            self._start_timer(self.partition.next_deadline)

    def _start_timer(self, deadline: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ends = deadline
        self._timer = self._manager.scheduler(max(0, deadline - self._manager.now()), self._expire_locks)

    def _expire_locks(self) -> None:
        self._timer, self._timer_ends = None, NEVER
        change = self.partition.expire(self._manager.now(), self.settings.limits)
        try:
            self.write(change)
        except BrokerError as error:
            _log.warning("%s: locks that ended could not be written: %s", self.key, error)
            if not self.is_over:
                self._start_timer(self._manager.now() + _RETRY_MS)


class SharePartitionManager:
    """sessions: of all members. log_of: the log of a partition by topic id; raises BrokerError."""

    def __init__(
        self,
        slots: int,
        coordinator: ShareCoordinator,
        log_of: Callable[[UUID, int], Log],
        settings_of: Callable[[str], ShareGroupSettings],
        clock: Clock,
        scheduler: Scheduler,
        run_blocking: Callable[..., Awaitable[Any]],
    ) -> None:
        self.sessions = ShareSessions(slots)
        self.coordinator = coordinator
        self.settings_of = settings_of
        self.scheduler = scheduler
        self._log_of = log_of
        self._clock = clock
        self._run_blocking = run_blocking
        self._active: dict[SharePartitionKey, ActiveSharePartition] = {}
        self._connections: dict[int, dict[SessionKey, ShareSession]] = {}

    def active(self) -> Collection[ActiveSharePartition]:
        return self._active.values()

    def now(self) -> int:
        return self._clock.monotonic_ms()

    async def load(self, key: SharePartitionKey) -> ActiveSharePartition:
        """Loaded, when it is not in use. Raises BrokerError."""
        active = self._active.get(key)
        if active is not None:
            return active
        log, state = self._log_and_state(key)
        start = state.start_offset
        if start == NO_START_OFFSET:
            start = await self._first_offset(key.group_id, log)
            active = self._active.get(key)
            if active is not None:  # another member's request was first
                return active
            # Meanwhile the topic may have been deleted, and the group with it or alone.
            log, state = self._log_and_state(key)
            start = start if state.start_offset == NO_START_OFFSET else state.start_offset
        partition = SharePartition(start, state.batches)
        epochs = state.state_epoch, log.leader_epoch
        active = self._active[key] = ActiveSharePartition(self, key, log, partition, epochs)
        return active

    def _log_and_state(self, key: SharePartitionKey) -> tuple[Log, ShareState]:
        log = self._log_of(key.topic_id, key.partition)
        try:
            return log, self.coordinator.read(key, log.leader_epoch)
        except BrokerError as error:
            raise _member_error(error) from error

    async def _first_offset(self, group_id: str, log: Log) -> int:
        settings = self.settings_of(group_id)
        if settings.auto_offset_reset == EARLIEST:
            return log.log_start_offset
        duration_ms = reset_duration_ms(settings.auto_offset_reset)
        if duration_ms is not None:
            record = await self._run_blocking(log.offset_for_timestamp, self._clock.now_ms() - duration_ms)
            if record is not None:
                return int(record.offset)
        return log.high_watermark

    def forget(self, active: ActiveSharePartition) -> None:
        """It must be loaded anew, or is over."""
        if self._active.get(active.key) is active:
            del self._active[active.key]
            active.close()

    def forget_group(self, group_id: str) -> None:
        self._forget_all(key for key in self._active if key.group_id == group_id)

    def forget_topics(self, topics: Collection[UUID]) -> None:
        """They are deleted."""
        self._forget_all(key for key in self._active if key.topic_id in topics)

    def _forget_all(self, keys: Iterable[SharePartitionKey]) -> None:
        for key in list(keys):
            if key in self._active:
                self.forget(self._active[key])

    # what members say

    def acknowledge(self, key: SharePartitionKey, member_id: str, batches: Sequence[Acknowledgement]) -> None:
        """Raises BrokerError, and then nothing of it counts."""
        active = self._active.get(key)
        if active is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
        active.write(active.partition.acknowledge(member_id, batches, self.now(), active.settings.limits))

    def end_session(self, key: SessionKey) -> None:
        """End a session and release its records. Raises BrokerError share_session_not_found."""
        session = self.sessions.get(key)
        self.sessions.remove(key)
        for topic_id, index in session.partitions:
            active = self._active.get(SharePartitionKey(key.group_id, topic_id, index))
            if active is not None:
                active.release(key.member_id)

    def connected(
        self, connection: int, on_close: Callable[[Callable[[], None]], object], session: ShareSession
    ) -> None:
        """A session began over this connection, and ends with it. on_close: calls back once when it is gone."""
        sessions = self._connections.get(connection)
        if sessions is None:
            sessions = self._connections[connection] = {}
            on_close(lambda: self._disconnected(connection))
        for key in [key for key, earlier in sessions.items() if not self.sessions.is_current(earlier)]:
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
