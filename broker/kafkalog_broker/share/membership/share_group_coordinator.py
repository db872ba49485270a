"""The coordinator of share groups: which partition of __consumer_offsets a group lives in (Kafka's GroupCoordinator).

The partitions are those of the group coordinator, which reads them and hands over what share groups have written
(`opened`, `closed`). All calls come from the event loop's thread, and none of them waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol
from uuid import UUID

from kafkalog_broker.coordinator.record_batches import Record
from kafkalog_broker.coordinator.shards import write_error
from kafkalog_broker.errors import BrokerError
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


class Partitions(Protocol):
    """The partitions of __consumer_offsets, as the group coordinator has them."""

    def partition_for(self, group_id: str, /) -> int: ...

    def check_open(self, partition: int, /) -> None:
        """Read it, when nobody has. Raises BrokerError where it is not served."""

    def check_free(self, group_id: str, /) -> None:
        """Raises BrokerError group_id_not_found when a group of another kind has that id."""


class GroupIds:
    """Partitions of a group coordinator that is made later: the two know each other."""

    def __init__(self, partitions: Callable[[], Partitions]) -> None:
        self._partitions = partitions

    def partition_for(self, group_id: str) -> int:
        return self._partitions().partition_for(group_id)

    def check_open(self, partition: int) -> None:
        self._partitions().check_open(partition)

    def check_free(self, group_id: str) -> None:
        self._partitions().check_free(group_id)


Initialize = Callable[[str, int, Mapping[UUID, TopicInfo]], None]
"""Begin the state of share partitions of a group, some time after the answer: (group, state epoch, partitions)."""


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class ShareGroupCoordinator:
    """append: one batch into a partition of __consumer_offsets; raises BrokerError. rack: of this broker."""

    def __init__(
        self,
        partitions: Partitions,
        append: Callable[[int, Sequence[Record]], None],
        clock: Clock,
        scheduler: Callable[[int, Callable[[], None]], TimerHandle],
        topics: Topics,
        settings_of: Callable[[str], GroupSettings],
        initialize: Initialize,
        rack: str | None = None,
    ) -> None:
        self._partitions = partitions
        self._append = append
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
            partial(self._write, partition), _Sessions(self._scheduler), self._topics, self._settings_of,
            self._clock.now_ms, self._rack,
        )  # fmt: skip
        self._shards[partition] = shard
        shard.load(loaded)

    def closed(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()

    def _write(self, partition: int, records: Sequence[Record]) -> None:
        try:
            self._append(partition, records)
        except BrokerError as error:
            raise BrokerError(write_error(error.code), error.what) from error

    def shard(self, group_id: str) -> ShareGroupShard:
        """The shard of a group, whether or not it exists. Raises BrokerError."""
        partition = self._partitions.partition_for(group_id)
        self._partitions.check_open(partition)
        return self._shards[partition]

    # members

    def heartbeat(self, said: Heartbeat) -> Beaten:
        """Raises BrokerError."""
        shard = self.shard(said.group_id)
        if said.group_id not in shard.groups:
            self._partitions.check_free(said.group_id)
        beaten = shard.heartbeat(said)
        if beaten.initialize:
            self._initialize(said.group_id, beaten.state_epoch, beaten.initialize)
        return beaten

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._settings_of(group_id).heartbeat_interval_ms

    # administration

    def find(self, group_id: str) -> ShareGroup | None:
        """None, also while its partition is not open: nothing is read."""
        shard = self._shards.get(self._partitions.partition_for(group_id))
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


class _Sessions:
    def __init__(self, scheduler: Callable[[int, Callable[[], None]], TimerHandle]) -> None:
        self._scheduler = scheduler
        self._timers: dict[tuple[str, str], TimerHandle] = {}

    def begin(self, group_id: str, member_id: str, delay_ms: int, over: Callable[[], None]) -> None:
        self.end(group_id, member_id)

        def fire() -> None:
            self._timers.pop((group_id, member_id), None)
            over()

        self._timers[group_id, member_id] = self._scheduler(delay_ms, fire)

    def end(self, group_id: str, member_id: str) -> None:
        timer = self._timers.pop((group_id, member_id), None)
        if timer is not None:
            timer.cancel()
