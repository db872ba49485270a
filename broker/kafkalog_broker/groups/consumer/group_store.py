"""The consumer groups of one partition of __consumer_offsets: their memory, log, clock, timers and settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.runtime import Timers
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import Group
from kafkalog_broker.groups.classic.rebalance import Write
from kafkalog_broker.groups.consumer.changes import Change, Kind
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup
from kafkalog_broker.groups.consumer.draft import Draft, Groups, apply
from kafkalog_broker.groups.consumer.group_config import GroupSettings
from kafkalog_broker.groups.consumer.topics_view import HashedTopics, TopicsView

log = logging.getLogger(__name__)

RETRY_MS = 500
"""After a time-out that could not be written (CoordinatorTimerImpl)."""


class Background(Protocol):
    """Computes away from the requests and calls `done` in their thread, with what came of it or the exception."""

    def __call__(self, compute: Callable[[], Any], done: Callable[[Any], None], /) -> None: ...


class ClassicSide(Protocol):
    """The classic groups of the same partition of __consumer_offsets."""

    groups: dict[str, Group]

    def forget(self, group: Group) -> None:
        """It is another's by now; its tombstone is written by who asks. Who waits for it is to join again."""
        ...

    def take_over(self, group: Group, rebalance: str | None) -> None:
        """A group with members, whose record is written. rebalance: why it begins with one; None: it does not."""
        ...


class GroupStore:
    """Not thread-safe. config, settings: as they are now; settings: of a group. new_id: for members without one."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        settings: Callable[[str], GroupSettings],
        topics: TopicsView,
        timers: Timers,
        write: Write,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        background: Background,
        classic: ClassicSide,
    ) -> None:
        self.groups: Groups = {}
        self._config = config
        self.settings = settings
        self.topics = topics
        self.hashes = HashedTopics(topics)
        self.timers = timers
        self._write = write
        self.now_ms = now_ms
        self.new_id = new_id
        self.background = background
        self.classic = classic

    @property
    def config(self) -> BrokerConfig:
        return self._config()

    @property
    def assignors(self) -> tuple[str, ...]:
        """The first is used where nobody asks for one."""
        return self.config.group_consumer_assignors

    def load(self, changes: Iterable[Change]) -> None:
        """Replay the latest record of each key, before the first request."""
        changes = list(changes)
        # A group that has lost its own record is being removed: Kafka writes the tombstones of a group in one batch.
        known = {change.group_id for change in changes if change.kind is Kind.EPOCH}
        for group_id in {change.group_id for change in changes} - known:
            log.warning("group %.200r has no epoch in the log and is left out", group_id)
        apply(self.groups, (change for change in changes if change.group_id in known))

    def find(self, group_id: str) -> ConsumerGroup:
        """Raises BrokerError (GROUP_ID_NOT_FOUND)."""
        group = self.groups.get(group_id)
        if group is not None:
            return group
        if group_id in self.classic.groups:
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")

    def commit(self, draft: Draft) -> None:
        """Write a draft as one batch, then do it. Raises BrokerError, and then nothing has changed."""
        records = draft.records()
        if records:
            self._write(records)
        apply(self.groups, draft.changes())
        draft.done()

    def after(self, key: tuple[str, ...], delay_ms: int, call: Callable[[], None], *, if_absent: bool = False) -> None:
        """Run `call` later, again and again while what it writes cannot be written."""
        if if_absent and key in self.timers:
            return

        def fire() -> None:
            try:
                call()
            except BrokerError as error:
                log.warning("group %.200r: a time-out could not be written and is tried again: %s", key[1], error)
                self.after(key, RETRY_MS, call)

        self.timers.schedule(key, delay_ms, fire)
