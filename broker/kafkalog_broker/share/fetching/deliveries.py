"""The share partitions in use (Kafka's SharePartitionManager and its cache): loaded at the first fetch of a group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

from kafkalog_broker.clock import Clock
from kafkalog_broker.config.share_properties import EARLIEST
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.share.fetching.delivery import Delivery, Scheduler, member_error
from kafkalog_broker.share.fetching.share_sessions import SessionKey, ShareSession, ShareSessions
from kafkalog_broker.share.group_settings import GroupSettings
from kafkalog_broker.share.partition.acknowledgement import Acknowledgement, acknowledge
from kafkalog_broker.share.partition.change import release
from kafkalog_broker.share.partition.share_partition import SharePartition
from kafkalog_broker.share.state.share_coordinator import ShareCoordinator
from kafkalog_broker.share.state.state_batches import NO_START_OFFSET
from kafkalog_broker.share.state.state_records import SharePartitionKey
from kafkalog_broker.storage.partition.log import Log

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
        settings_of: Callable[[str], GroupSettings],
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

    def settings_of(self, group_id: str) -> GroupSettings:
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
            found = await self._run_blocking(log.reader.offset_for_timestamp, self._clock.now_ms() - duration)
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
        """What the member has acquired can be acquired by others. Raises BrokerError share_session_not_found."""
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
