"""The group coordinator: which partition of __consumer_offsets a group lives in, and whether that one is served here.

One process need not own every partition: a group whose partition is another's is answered NOT_COORDINATOR. A partition
is served from `runtime.open` (or its first use, when nobody has opened it) to `close_partition`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.coordinator_runtime import CoordinatorRuntime
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.messages import (
    CommitRequest,
    JoinAnswer,
    JoinCallback,
    JoinRequest,
    ListedGroup,
    SyncAnswer,
    SyncCallback,
    SyncRequest,
)
from kafkalog_broker.groups.consumer.consumer_group_manager import ConsumerGroupManager
from kafkalog_broker.groups.group_loader import LoadedPartition, load
from kafkalog_broker.groups.group_shard import GroupShard
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_records import GroupType
from kafkalog_broker.groups.offset_commit import PreparingCommit, prepare_commit
from kafkalog_broker.groups.share.share_group_manager import ShareGroupManager
from kafkalog_broker.groups.streams.streams_group_manager import StreamsGroupManager

log = logging.getLogger(__name__)


class GroupCoordinator:
    """All calls come from one thread (the event loop's). Nothing here waits: long waits end in a callback."""

    def __init__(self, log: CoordinatorLog, context: GroupContext) -> None:
        """log: __consumer_offsets. Calls about all groups (lists, expiry, deleted topics) open unopened partitions."""
        self.context = context
        self.runtime: CoordinatorRuntime[LoadedPartition, GroupShard] = CoordinatorRuntime(log, load, self._serve)
        interval_ms = context.config.offsets_retention_check_interval_ms
        self._next_expiry_ms = context.clock.monotonic_ms() + interval_ms

    # partitions

    def _serve(self, partition: int, loaded: LoadedPartition) -> GroupShard:
        append, commit = partial(self.runtime.append, partition), partial(self.runtime.commit, partition)
        return GroupShard(loaded, self.context, append, commit)

    def close_partition(self, partition: int) -> None:
        """The partition is gone, or another's: its members are sent to look for their coordinator."""
        shard = self.runtime.remove(partition)
        if shard is not None:
            shard.close()

    def close_all(self) -> None:
        """The topic is gone: its groups and their offsets are unknown."""
        for partition in self.runtime.served():
            self.close_partition(partition)

    def shutdown(self) -> None:
        """Answer everybody who waits. Afterwards all groups are COORDINATOR_NOT_AVAILABLE."""
        self.runtime.stop()
        self.close_all()

    def shard(self, group_id: str) -> GroupShard:
        """The shard of a group, existing or not; "" is the group of old clients, which commit without one. Raises
        BrokerError, GROUP_ID_NOT_FOUND for a share group."""
        shard = self.runtime.get(self.runtime.partition_for(group_id))
        if group_id in shard.share.groups:
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} is not a classic group.")
        return shard

    def named_shard(self, group_id: str) -> GroupShard:
        if not group_id:
            raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")
        return self.shard(group_id)

    def consumer_groups(self, group_id: str) -> ConsumerGroupManager:
        """Consumer groups (KIP-848) of the partition of a group, whether or not it exists. Raises BrokerError."""
        return self._served_shard(group_id, GroupType.CONSUMER).consumer

    def share_groups(self, group_id: str) -> ShareGroupManager:
        return self.runtime.get(self.runtime.partition_for(group_id)).share

    def streams_groups(self, group_id: str) -> StreamsGroupManager:
        return self._served_shard(group_id, GroupType.STREAMS).streams

    def _served_shard(self, group_id: str, group_type: GroupType) -> GroupShard:
        if group_type.value not in self.context.config.group_coordinator_rebalance_protocols:
            raise BrokerError(
                ErrorCode.unsupported_version,
                f"group.coordinator.rebalance.protocols leaves the {group_type.value} protocol out",
            )
        return self.runtime.get(self.runtime.partition_for(group_id))

    # members that speak the classic protocol

    def join(self, request: JoinRequest, answer: JoinCallback) -> None:
        """`answer` is called exactly once, now or later."""
        config = self.context.config
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        try:
            shard = self.named_shard(request.group_id)
            if not shortest <= request.session_timeout_ms <= longest:
                raise BrokerError(
                    ErrorCode.invalid_session_timeout,
                    f"{request.session_timeout_ms} ms, expected {shortest} to {longest}",
                )
            shard.join(request, answer)
        except BrokerError as error:
            is_other = error.code is ErrorCode.group_id_not_found
            answer(JoinAnswer(ErrorCode.inconsistent_group_protocol if is_other else error.code, request.member_id))

    def sync(self, request: SyncRequest, answer: SyncCallback) -> None:
        """`answer` is called exactly once, now or later."""
        try:
            self.named_shard(request.group_id).classic_protocol(request.group_id).sync(request, answer)
        except BrokerError as error:
            answer(SyncAnswer(error.code))

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """NONE, or what the member has to do: REBALANCE_IN_PROGRESS join again, and so on."""
        try:
            members = self.named_shard(group_id).classic_protocol(group_id)
            members.heartbeat(group_id, member_id, generation, group_instance_id)
        except BrokerError as error:
            if error.code is not ErrorCode.coordinator_load_in_progress:  # sessions begin again when it is loaded
                return error.code
        return ErrorCode.none

    # offsets

    def prepare_commit(self, request: CommitRequest) -> PreparingCommit:
        """Encode a commit's records in steps of some 0.1 ms; the commit itself checks the group's state."""
        return prepare_commit(request, self.context.config.offset_metadata_max_bytes, self.context.clock.now_ms())

    def end_transaction(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """A marker has been written into a partition. One that is not open will find it when it is read."""
        shard = self.runtime.if_open(partition)
        if shard is not None:
            shard.offsets.end_transaction(producer_id, commit=commit)

    # administration

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
        """Groups of partitions served here; empty filters accept everything, case is ignored. Raises BrokerError."""
        accepted_states = {state.strip().lower() for state in states}
        accepted_types = {group_type.strip().lower() for group_type in types}
        return [
            group
            for shard in self.runtime.all()
            for group in shard.list_groups()
            if (not accepted_states or group.group_state.lower().replace("notready", "not_ready") in accepted_states)
            and (not accepted_types or group.group_type in accepted_types)
        ]

    # what happens by itself

    def tick(self) -> None:
        """Expire offsets and groups, every offsets.retention.check.interval.ms."""
        monotonic_ms = self.context.clock.monotonic_ms()
        if monotonic_ms < self._next_expiry_ms:
            return
        self._next_expiry_ms = monotonic_ms + self.context.config.offsets_retention_check_interval_ms
        self.runtime.open_owned()
        for partition, shard in self.runtime.served().items():
            try:
                shard.expire()
            except BrokerError as error:
                log.warning("__consumer_offsets-%d: offsets could not be expired: %s", partition, error)

    def on_topics_deleted(self, topics: Collection[str], topic_ids: Collection[UUID] = ()) -> Iterator[None]:
        """Remove these topics' offsets and share partitions in steps. BrokerError where those cannot be found."""
        self.runtime.open_owned()
        for partition, shard in self.runtime.served().items():
            try:
                yield from shard.forget_topics(topics)
                shard.share.forget_topics(topic_ids)
            except BrokerError as error:
                names = ", ".join(sorted(topics))[:200]
                log.warning(
                    "__consumer_offsets-%d: offsets or share partitions of %s remain: %s", partition, names, error
                )
            yield
