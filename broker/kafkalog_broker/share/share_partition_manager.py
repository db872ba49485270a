"""The loaded share partitions and the share sessions of all groups (Kafka's SharePartitionManager)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafkalog_broker.config.reset_duration import EARLIEST, reset_duration_ms
from kafkalog_broker.coordinator.coordinator_timer import Scheduler
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_settings import ShareGroupSettings
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.share.acknowledgement import Acknowledgement, acknowledge
from kafkalog_broker.share.active_share_partition import ActiveSharePartition, SharePartitionServices
from kafkalog_broker.share.persister_errors import member_error
from kafkalog_broker.share.share_coordinator import ShareCoordinator
from kafkalog_broker.share.share_partition import SharePartition
from kafkalog_broker.share.share_sessions import SessionKey, ShareSession, ShareSessions
from kafkalog_broker.share.share_state import NO_START_OFFSET, SharePartitionKey, ShareState
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.timestamp_lookup import offset_for_timestamp


class SharePartitionManager:
    """Loads a share partition at the first fetch of a group, and drops it when the last session of the group ends.

    Not thread-safe; call from the event loop.
    """

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
        """Create a manager that has loaded no share partitions yet.

        Args:
            slots: Largest number of sessions.
            log_of: Returns the log of a partition by topic ID; raises BrokerError if it is not on this broker.
            settings_of: Returns the settings of a group.
            run_blocking: Runs a function in a thread.
        """
        self.sessions = ShareSessions(slots)
        self.settings_of = settings_of
        self._coordinator = coordinator
        self._log_of = log_of
        self._clock = clock
        self._run_blocking = run_blocking
        self._services = SharePartitionServices(coordinator, settings_of, scheduler, self.now_ms)
        self._active: dict[SharePartitionKey, ActiveSharePartition] = {}
        self._connections: dict[int, dict[SessionKey, ShareSession]] = {}

    def active_partitions(self) -> Collection[ActiveSharePartition]:
        """Return all loaded share partitions."""
        return self._active.values()

    def now_ms(self) -> int:
        """Return the time in ms of the clock that acquisition locks use."""
        return self._clock.monotonic_ms()

    async def load(self, key: SharePartitionKey) -> ActiveSharePartition:
        """Return a share partition, after loading it if it is not loaded.

        Raises:
            BrokerError: The error for the member, if the log is not on this broker or the state cannot be read.
        """
        active = self._active.get(key)
        if active is not None:
            return active
        loaded = self._read(key)
        start_offset = loaded.state.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = await self._reset_offset(key.group_id, loaded.log)
            active = self._active.get(key)
            if active is not None:  # the fetch of another member has loaded it
                return active
            # The topic or the state may have been deleted or changed while the offset was looked up.
            loaded = self._read(key)
            if loaded.state.start_offset != NO_START_OFFSET:
                start_offset = loaded.state.start_offset
        active = self._active[key] = ActiveSharePartition(
            key, loaded.log, SharePartition(start_offset, loaded.state.batches), loaded.state.state_epoch,
            loaded.log.leader_epoch, self._services, self._drop,
        )  # fmt: skip
        return active

    def _read(self, key: SharePartitionKey) -> _LogAndState:
        log = self._log_of(key.topic_id, key.partition)
        try:
            return _LogAndState(log, self._coordinator.read(key, log.leader_epoch))
        except BrokerError as error:
            raise member_error(error) from error

    async def _reset_offset(self, group_id: str, log: Log) -> int:
        """Return the start offset that share.auto.offset.reset selects."""
        settings = self.settings_of(group_id)
        if settings.auto_offset_reset == EARLIEST:
            return log.log_start_offset
        duration_ms = reset_duration_ms(settings.auto_offset_reset)
        if duration_ms is not None:
            record = await self._run_blocking(offset_for_timestamp, log, self._clock.now_ms() - duration_ms)
            if record is not None:
                return int(record.offset)
        return log.high_watermark

    def drop_group(self, group_id: str) -> None:
        """Drop the share partitions of a group, whose state is about to change or to be deleted."""
        self._drop_all(key for key in self._active if key.group_id == group_id)

    def drop_topics(self, topics: Collection[UUID]) -> None:
        """Drop the share partitions of deleted topics."""
        self._drop_all(key for key in self._active if key.topic_id in topics)

    def _drop_all(self, keys: Iterable[SharePartitionKey]) -> None:
        for key in list(keys):
            if key in self._active:
                self._drop(self._active[key])

    def _drop(self, active: ActiveSharePartition) -> None:
        if self._active.get(active.key) is active:
            del self._active[active.key]
            active.close()

    def acknowledge(self, key: SharePartitionKey, member_id: str, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Acknowledge records that a member has acquired, and persist their states.

        Raises:
            BrokerError: If a record cannot be acknowledged or the states cannot be persisted; then nothing has changed.
        """
        active = self._active.get(key)
        if active is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition.")
        limits = active.settings.limits
        active.persist(acknowledge(active.partition, member_id, acknowledgements, self.now_ms(), limits))

    def bind_session(self, connection: ConnectionInfo, session: ShareSession) -> None:
        """End a new session when the connection on which it began is closed."""
        connection_id = id(connection)
        sessions = self._connections.get(connection_id)
        if sessions is None:
            sessions = self._connections[connection_id] = {}
            connection.on_close(lambda: self._connection_closed(connection_id))
        for key in [key for key, earlier in sessions.items() if not self.sessions.is_current(earlier)]:
            del sessions[key]
            self._drop_group_without_sessions(key.group_id)
        sessions[session.key] = session

    def end_session(self, key: SessionKey) -> None:
        """End a session and release the records of its member. Raises BrokerError share_session_not_found."""
        session = self.sessions.get(key)
        self.sessions.remove(key)
        for topic_id, index in session.partitions:
            active = self._active.get(SharePartitionKey(key.group_id, topic_id, index))
            if active is not None:
                active.release(key.member_id)

    def _connection_closed(self, connection_id: int) -> None:
        sessions = self._connections.pop(connection_id, {})
        for session in sessions.values():
            if self.sessions.is_current(session):
                self.end_session(session.key)
        for group_id in {key.group_id for key in sessions}:
            self._drop_group_without_sessions(group_id)

    def _drop_group_without_sessions(self, group_id: str) -> None:
        if not self.sessions.has_sessions(group_id):
            self.drop_group(group_id)


@dataclass(frozen=True, slots=True)
class _LogAndState:
    """The log of a share partition, and the state as read with the log's leader epoch."""

    log: Log
    state: ShareState
