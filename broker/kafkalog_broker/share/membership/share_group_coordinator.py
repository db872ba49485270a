"""The coordinator of share groups: which partition of __consumer_offsets a group lives in (Kafka's GroupCoordinator).

The partitions are those of the group coordinator, which reads them and hands over what share groups have written
(`opened`, `closed`). All calls come from the event loop's thread, and none of them waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import Record
from kafkalog_broker.coordinator.runtime import Scheduler, Timers
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.share.membership.group_records import TopicInfo
from kafkalog_broker.share.membership.heartbeat import Beaten, Heartbeat
from kafkalog_broker.share.membership.share_group import ShareGroup, Topics
from kafkalog_broker.share.membership.share_group_shard import ShareGroupShard
from kafkalog_broker.share.membership.state_partitions import GroupSettings

_log = logging.getLogger(__name__)

PROTOCOL_TYPE = TYPE = "share"


class Listed(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    type: str


Initialize = Callable[[str, int, Mapping[UUID, TopicInfo]], None]
"""Begin the state of share partitions of a group, some time after the answer: (group, state epoch, partitions)."""


class ShareGroupCoordinator:
    """groups: the coordinator of the other groups, made after this one. rack: of this broker."""

    def __init__(
        self,
        groups: Callable[[], GroupCoordinator],
        clock: Clock,
        scheduler: Scheduler,
        topics: Topics,
        settings_of: Callable[[str], GroupSettings],
        initialize: Initialize,
        rack: str | None = None,
    ) -> None:
        self._groups = groups
        self._clock = clock
        self._scheduler = scheduler
        self._topics = topics
        self._settings_of = settings_of
        self._initialize = initialize
        self._rack = rack
        self._shards: dict[int, ShareGroupShard] = {}

    # partitions

    def opened(self, partition: int, loaded: Mapping[bytes, bytes]) -> None:
        """A partition is served from now on."""
        shard = ShareGroupShard(
            partial(self._write, partition), Timers(self._scheduler), self._topics, self._settings_of,
            self._clock.now_ms, self._rack,
        )  # fmt: skip
        self._shards[partition] = shard
        shard.load(loaded)

    def closed(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()

    def _write(self, partition: int, records: Sequence[Record]) -> None:
        self._groups().runtime.write(partition, records)

    def shard(self, group_id: str) -> ShareGroupShard:
        """The shard of a group, whether or not it exists. Raises BrokerError."""
        partition, _ = self._groups().runtime.of(group_id)
        return self._shards[partition]

    # members

    def heartbeat(self, said: Heartbeat) -> Beaten:
        """Raises BrokerError."""
        shard = self.shard(said.group_id)
        if said.group_id not in shard.groups:
            self._groups().check_free(said.group_id)
        beaten = shard.heartbeat(said)
        if beaten.initialize:
            self._initialize(said.group_id, beaten.state_epoch, beaten.initialize)
        return beaten

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._settings_of(group_id).heartbeat_interval_ms

    # administration

    def find(self, group_id: str) -> ShareGroup | None:
        """None, also while its partition is not open: nothing is read."""
        shard = self._shards.get(self._groups().partition_for(group_id))
        return None if shard is None else shard.groups.get(group_id)

    def has(self, group_id: str) -> bool:
        return self.find(group_id) is not None

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[Listed]:
        """Groups of the partitions that are loaded. Empty filters match everything, in any case."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {kind.strip().lower() for kind in types}
        if wanted_types and TYPE not in wanted_types:
            return []
        return [
            Listed(group.group_id, PROTOCOL_TYPE, group.state_name, TYPE)
            for shard in self._shards.values()
            for group in shard.groups.values()
            if not wanted_states or group.state_name.lower() in wanted_states
        ]

    def on_topics_deleted(self, topics: Collection[UUID]) -> Iterator[None]:
        """Nothing is known of their share partitions any more, step by step."""
        for partition, shard in list(self._shards.items()):
            try:
                shard.forget_topics(topics)
            except BrokerError as error:
                _log.warning("__consumer_offsets-%d: share partitions of deleted topics remain: %s", partition, error)
            yield
