"""The group coordinator: entry point for all requests about groups (Kafka's GroupCoordinatorService).

A group belongs to one partition of __consumer_offsets. Its requests are operations on the shard of that partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TypeVar
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.coordinator_runtime import CoordinatorRuntime
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_requests import (
    JoinCallback,
    JoinRequest,
    JoinResponse,
    SyncCallback,
    SyncRequest,
    SyncResponse,
)
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup
from kafkalog_broker.groups.consumer.consumer_group_heartbeat import ConsumerHeartbeatRequest, consumer_group_heartbeat
from kafkalog_broker.groups.group_loader import LoadedPartition, load
from kafkalog_broker.groups.group_shard import GroupShard, ListedGroup
from kafkalog_broker.groups.modern.group_changes import GroupResult
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_records import GroupType, SharedTopic
from kafkalog_broker.groups.modern.heartbeat_response import HeartbeatResponse
from kafkalog_broker.groups.modern.modern_groups import ModernGroups
from kafkalog_broker.groups.offset_commit import PreparingCommit, prepare_commit
from kafkalog_broker.groups.offset_requests import CommitRequest
from kafkalog_broker.groups.share import share_partition_initialization
from kafkalog_broker.groups.share.share_group import ShareGroup
from kafkalog_broker.groups.share.share_group_heartbeat import ShareHeartbeatRequest, share_group_heartbeat
from kafkalog_broker.groups.share.share_group_members import remove_group
from kafkalog_broker.groups.share.shared_topics import SharedTopics
from kafkalog_broker.groups.streams.streams_group import StreamsGroup
from kafkalog_broker.groups.streams.streams_group_heartbeat import StreamsHeartbeatResponse, streams_group_heartbeat
from kafkalog_broker.groups.streams.streams_heartbeat_request import StreamsHeartbeatRequest

_log = logging.getLogger(__name__)

T = TypeVar("T")


class GroupCoordinator:
    """The groups of this broker. Not thread-safe; call from the event loop.

    Methods block only to load a partition at its first use. Requests that have to wait are answered through a callback.
    The heartbeats of consumer, share and streams groups and the changes of share partitions raise BrokerError; then
    nothing has changed.
    """

    def __init__(self, log: CoordinatorLog, context: GroupContext) -> None:
        """Create without loaded partitions. `log` is the topic __consumer_offsets."""
        self.context = context
        self.runtime: CoordinatorRuntime[LoadedPartition, GroupShard] = CoordinatorRuntime(
            log, load, self._create_shard
        )
        interval_ms = context.config.offsets_retention_check_interval_ms
        self._next_expiry_ms = context.clock.monotonic_ms() + interval_ms

    def _create_shard(self, partition: int, loaded: LoadedPartition) -> GroupShard:
        append, commit = partial(self.runtime.append, partition), partial(self.runtime.commit, partition)
        return GroupShard(loaded, self.context, append, commit)

    def close_all(self) -> None:
        """Unload all partitions, for example after the topic was deleted, and answer the members that wait."""
        for shard in self.runtime.unload_all():
            shard.close()

    def shutdown(self) -> None:
        """Answer all members that wait. Further requests fail with COORDINATOR_NOT_AVAILABLE."""
        self.runtime.stop()
        self.close_all()

    def shard(self, group_id: str) -> GroupShard:
        """Return the shard of a group, which need not exist. Old clients that commit without a group use the ID "".

        Raises:
            BrokerError: group_id_not_found for a share group; otherwise as `CoordinatorRuntime.get`.
        """
        shard = self._shard(group_id)
        if group_id in shard.share.groups:
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} is not a classic group.")
        return shard

    def named_shard(self, group_id: str) -> GroupShard:
        """Like `shard`, but raises BrokerError invalid_group_id for an empty group ID."""
        if not group_id:
            raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")
        return self.shard(group_id)

    def consumer_groups(self, group_id: str) -> ModernGroups[ConsumerGroup]:
        """Return the consumer groups (KIP-848) of the partition of a group. Raises BrokerError."""
        self._check_protocol(GroupType.CONSUMER)
        return self._shard(group_id).consumer

    def share_groups(self, group_id: str) -> ModernGroups[ShareGroup]:
        """Return the share groups (KIP-932) of the partition of a group. Raises BrokerError."""
        return self._shard(group_id).share

    def streams_groups(self, group_id: str) -> ModernGroups[StreamsGroup]:
        """Return the streams groups (KIP-1071) of the partition of a group. Raises BrokerError."""
        self._check_protocol(GroupType.STREAMS)
        return self._shard(group_id).streams

    def _shard(self, group_id: str) -> GroupShard:
        return self.runtime.get(self.runtime.partition_for(group_id))

    def _run(self, group_id: str, operation: Callable[[GroupShard], GroupResult[T]]) -> T:
        return self.runtime.run(self.runtime.partition_for(group_id), operation)

    def _check_protocol(self, group_type: GroupType) -> None:
        if group_type.value not in self.context.config.group_coordinator_rebalance_protocols:
            raise BrokerError(
                ErrorCode.unsupported_version,
                f"group.coordinator.rebalance.protocols leaves the {group_type.value} protocol out",
            )

    def consumer_group_heartbeat(self, request: ConsumerHeartbeatRequest) -> HeartbeatResponse:
        self._check_protocol(GroupType.CONSUMER)
        return self._run(request.group_id, lambda shard: consumer_group_heartbeat(shard.consumer, request))

    def share_group_heartbeat(self, request: ShareHeartbeatRequest) -> HeartbeatResponse:
        return self._run(request.group_id, lambda shard: share_group_heartbeat(shard.share, request))

    def streams_group_heartbeat(self, request: StreamsHeartbeatRequest) -> StreamsHeartbeatResponse:
        self._check_protocol(GroupType.STREAMS)
        return self._run(request.group_id, lambda shard: streams_group_heartbeat(shard.streams, request))

    def initialize_share_group_state(self, group_id: str, topics: SharedTopics) -> None:
        operation = share_partition_initialization.initialize_share_group_state
        self._run(group_id, lambda shard: operation(shard.share, group_id, topics))

    def uninitialize_share_group_state(self, group_id: str, topics: SharedTopics) -> None:
        operation = share_partition_initialization.uninitialize_share_group_state
        self._run(group_id, lambda shard: operation(shard.share, group_id, topics))

    def alter_share_group_offsets(self, group_id: str, topics: SharedTopics) -> int:
        operation = share_partition_initialization.alter_share_group_offsets
        return self._run(group_id, lambda shard: operation(shard.share, group_id, topics))

    def initiate_delete_share_group_offsets(
        self, group_id: str, topic_ids: Collection[UUID]
    ) -> dict[UUID, SharedTopic]:
        operation = share_partition_initialization.initiate_delete_share_group_offsets
        return self._run(group_id, lambda shard: operation(shard.share, group_id, topic_ids))

    def complete_delete_share_group_offsets(self, group_id: str, topic_ids: Collection[UUID]) -> None:
        operation = share_partition_initialization.complete_delete_share_group_offsets
        self._run(group_id, lambda shard: operation(shard.share, group_id, topic_ids))

    def initiate_delete_share_group(self, group_id: str) -> dict[UUID, SharedTopic]:
        operation = share_partition_initialization.initiate_delete_share_group
        return self._run(group_id, lambda shard: operation(shard.share, group_id))

    def delete_share_group(self, group_id: str) -> None:
        self._run(group_id, lambda shard: remove_group(shard.share, shard.share.group(group_id)))

    def join(self, request: JoinRequest, answer: JoinCallback) -> None:
        """Call `answer` exactly once, now or later."""
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
            is_other_type = error.code is ErrorCode.group_id_not_found
            code = ErrorCode.inconsistent_group_protocol if is_other_type else error.code
            answer(JoinResponse(code, request.member_id))

    def sync(self, request: SyncRequest, answer: SyncCallback) -> None:
        """Call `answer` exactly once, now or later."""
        try:
            self.named_shard(request.group_id).sync(request, answer)
        except BrokerError as error:
            answer(SyncResponse(error.code))

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Process a Heartbeat request. REBALANCE_IN_PROGRESS means that the member has to join again."""
        try:
            self.named_shard(group_id).heartbeat(group_id, member_id, generation, group_instance_id)
        except BrokerError as error:
            if error.code is not ErrorCode.coordinator_load_in_progress:  # members get a new session after loading
                return error.code
        return ErrorCode.none

    def prepare_commit(self, request: CommitRequest) -> PreparingCommit:
        """Encode the records of a commit in steps. Commit them with `GroupShard.commit`, which checks the group."""
        return prepare_commit(request, self.context.config.offset_metadata_max_bytes, self.context.clock.now_ms())

    def end_transaction(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction marker that was appended to a partition. No-op if the partition is not loaded."""
        shard = self.runtime.get_if_loaded(partition)
        if shard is not None:
            shard.offsets.end_transaction(producer_id, commit=commit)

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
        """Return the groups with one of the states and types, ignoring case; an empty filter accepts all of them.

        Raises:
            BrokerError: As `CoordinatorRuntime.all_shards`.
        """
        accepted_states = {state.strip().lower() for state in states}
        accepted_types = {group_type.strip().lower() for group_type in types}
        return [
            group
            for shard in self.runtime.all_shards()
            for group in shard.list_groups()
            if (not accepted_states or group.group_state.lower().replace("notready", "not_ready") in accepted_states)
            and (not accepted_types or group.group_type in accepted_types)
        ]

    def tick(self) -> None:
        """Remove expired offsets and groups, every offsets.retention.check.interval.ms."""
        monotonic_ms = self.context.clock.monotonic_ms()
        if monotonic_ms < self._next_expiry_ms:
            return
        self._next_expiry_ms = monotonic_ms + self.context.config.offsets_retention_check_interval_ms
        self.runtime.load_owned_now()
        for partition, shard in self.runtime.loaded_shards().items():
            try:
                shard.expire()
            except BrokerError as error:
                _log.warning("__consumer_offsets-%d: offsets could not be expired: %s", partition, error)

    def on_topics_deleted(self, topics: Collection[str], topic_ids: Collection[UUID] = ()) -> Iterator[None]:
        """Remove the offsets and share partitions of deleted topics, in steps. Raises BrokerError if loading fails."""
        self.runtime.load_owned_now()
        for partition, shard in self.runtime.loaded_shards().items():
            try:
                yield from shard.forget_topics(topics)
                shard.forget_shared_topics(topic_ids)
            except BrokerError as error:
                names = ", ".join(sorted(topics))[:200]
                _log.warning(
                    "__consumer_offsets-%d: offsets or share partitions of %s remain: %s", partition, names, error
                )
            yield
