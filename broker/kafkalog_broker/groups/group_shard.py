"""The groups of one partition of __consumer_offsets, their members and offsets (Kafka's GroupCoordinatorShard)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_executor import CoordinatorExecutor
from kafkalog_broker.coordinator.coordinator_record import MAX_TOMBSTONES_PER_BATCH, Record
from kafkalog_broker.coordinator.coordinator_result import CoordinatorResult
from kafkalog_broker.coordinator.coordinator_runtime import Append
from kafkalog_broker.coordinator.coordinator_timer import Commit, CoordinatorTimer
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups import offset_validation
from kafkalog_broker.groups.classic.classic_group import ClassicGroup, ClassicGroupState
from kafkalog_broker.groups.classic.classic_group_manager import ClassicGroupManager
from kafkalog_broker.groups.classic.classic_group_records import group_key
from kafkalog_broker.groups.classic.classic_requests import (
    JoinCallback,
    JoinRequest,
    JoinResponse,
    LeavingMember,
    SyncCallback,
    SyncRequest,
)
from kafkalog_broker.groups.classic.consumer_protocol import PROTOCOL_TYPE
from kafkalog_broker.groups.consumer import consumer_group_members
from kafkalog_broker.groups.consumer.classic_member_requests import (
    heartbeat_to_consumer_group,
    join_consumer_group,
    leave_consumer_group,
    sync_consumer_group,
)
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup
from kafkalog_broker.groups.group_loader import LoadedPartition
from kafkalog_broker.groups.modern import group_record_codec
from kafkalog_broker.groups.modern.group_changes import AnyRecord, GroupResult
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_records import GroupRecord, GroupType
from kafkalog_broker.groups.modern.member_timers import schedule_timers_of_loaded_groups
from kafkalog_broker.groups.modern.modern_group import ModernGroupState
from kafkalog_broker.groups.modern.modern_groups import GroupT, ModernGroups, RemoveMember, existing_group_records
from kafkalog_broker.groups.offset_commit import PreparedCommit
from kafkalog_broker.groups.offset_expiration import CommittingGroup, expired_offsets
from kafkalog_broker.groups.offset_records import OffsetKey, offset_key
from kafkalog_broker.groups.offset_requests import CommitRequest
from kafkalog_broker.groups.offset_store import OffsetStore
from kafkalog_broker.groups.share import share_group_members
from kafkalog_broker.groups.share.share_group import ShareGroup
from kafkalog_broker.groups.share.share_partition_initialization import forget_deleted_topics
from kafkalog_broker.groups.streams import streams_group_members
from kafkalog_broker.groups.streams.streams_group import StreamsGroup

_log = logging.getLogger(__name__)


class ListedGroup(NamedTuple):
    """A group in the response to ListGroups, with the names of its fields."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str = "classic"


class GroupShard:
    """State of one partition. Not thread-safe; call from the event loop."""

    def __init__(self, loaded: LoadedPartition, context: GroupContext, append: Append, commit: Commit) -> None:
        """Create from the loaded state, and start the timers of the members.

        Args:
            loaded: State of the partition.
            append: `CoordinatorRuntime.append` for this partition.
            commit: `CoordinatorRuntime.commit` for this partition.
        """
        self.offsets: OffsetStore = loaded.offsets
        self._context = context
        self._config = context.config
        self._now_ms = context.clock.now_ms
        self._append = append
        self._commit = commit
        self.timer = CoordinatorTimer(context.scheduler, commit)
        self._executor = CoordinatorExecutor(lambda task, done: context.background(task, done), commit)
        self.classic = ClassicGroupManager(context, self.timer, append)
        self.consumer = self._modern_groups(GroupType.CONSUMER, ConsumerGroup, consumer_group_members.remove_member)
        self.share = self._modern_groups(
            GroupType.SHARE, lambda group_id: ShareGroup(group_id, self._now_ms), share_group_members.remove_member
        )
        self.streams = self._modern_groups(GroupType.STREAMS, StreamsGroup, streams_group_members.remove_member)
        self._by_type: dict[GroupType, ModernGroups[Any]] = {
            groups.group_type: groups for groups in (self.consumer, self.share, self.streams)
        }
        self._load_modern_groups(loaded)
        self._load_classic_groups(loaded)

    def _modern_groups(
        self, group_type: GroupType, new_group: Callable[[str], GroupT], remove_member: RemoveMember[GroupT]
    ) -> ModernGroups[GroupT]:
        return ModernGroups(
            group_type, new_group, self._context, self.timer, self._executor, self.classic, self.type_of, remove_member
        )

    def _load_modern_groups(self, loaded: LoadedPartition) -> None:
        """Replay the records. The sessions of all members begin again, because heartbeats are not in the log."""
        records: dict[GroupType, list[GroupRecord]] = {group_type: [] for group_type in self._by_type}
        for record in loaded.records:
            records[record.group_type].append(record)
        for group_type in (GroupType.CONSUMER, GroupType.STREAMS):
            records[group_type] = existing_group_records(records[group_type])
        for group_type, groups in self._by_type.items():
            for record in records[group_type]:
                groups.replay(record)
        schedule_timers_of_loaded_groups(self.consumer, self._context.consumer_settings)
        schedule_timers_of_loaded_groups(self.share, self._context.share_settings)
        schedule_timers_of_loaded_groups(self.streams, self._context.streams_settings)

    def _load_classic_groups(self, loaded: LoadedPartition) -> None:
        others = self.consumer.groups.keys() | self.streams.groups.keys()
        for group_id, record in loaded.groups.items():
            if group_id not in others:
                self.classic.groups[group_id] = ClassicGroup.from_record(group_id, record, self._now_ms)
        for group_id in self.offsets.group_ids() - self.classic.groups.keys() - others:
            self.classic.groups[group_id] = ClassicGroup(group_id, self._now_ms)  # a simple group, which only commits
        for group in self.classic.groups.values():
            for member in group.members.values():
                self.classic.restart_session(group, member)
            max_size = self._config.group_max_size
            if len(group.members) > max_size:
                self.classic.prepare_rebalance(group, f"{len(group.members)} members, group.max.size is {max_size}")

    def close(self) -> None:
        """Stop timers and tasks, and answer members that wait with NOT_COORDINATOR."""
        self.timer.cancel_all()
        self._executor.cancel_all()
        for group in list(self.classic.groups.values()):
            self.classic.forget(group, ErrorCode.not_coordinator)

    def encode(self, record: AnyRecord) -> Record:
        return group_record_codec.encode(record) if isinstance(record, GroupRecord) else record

    def replay(self, offset: int, record: AnyRecord) -> None:
        """Apply the record of a consumer, share or streams group. Classic groups are changed by the appending code."""
        if isinstance(record, GroupRecord):
            self._by_type[record.group_type].replay(record)

    def type_of(self, group_id: str) -> GroupType | None:
        """Return the type of a group, or None if it does not exist."""
        if group_id in self.classic.groups:
            return GroupType.CLASSIC
        return next((group_type for group_type, groups in self._by_type.items() if group_id in groups.groups), None)

    def consumer_or_streams_group(self, group_id: str) -> ConsumerGroup | StreamsGroup | None:
        return self.consumer.groups.get(group_id) or self.streams.groups.get(group_id)

    def committing_groups(self) -> list[CommittingGroup]:
        """Return all groups that can commit offsets."""
        return [*self.classic.groups.values(), *self.consumer.groups.values(), *self.streams.groups.values()]

    def join(self, request: JoinRequest, answer: JoinCallback) -> None:
        """Call `answer` once, now or at the end of the join phase, unless BrokerError is raised."""
        group = self.consumer_or_streams_group(request.group_id)
        if group is None or group.state is ModernGroupState.EMPTY:
            if group is not None:
                self._remove_group(group)
            self.classic.join(request, answer)
        elif isinstance(group, ConsumerGroup):
            try:
                joined = self._commit(join_consumer_group(self.consumer, group, request))
            except BrokerError as error:
                joined = JoinResponse(error.code)
            answer(joined)
        else:
            answer(JoinResponse(ErrorCode.inconsistent_group_protocol))

    def sync(self, request: SyncRequest, answer: SyncCallback) -> None:
        """Call `answer` once, now or when the leader has sent the assignment, unless BrokerError is raised."""
        if request.group_id in self.consumer.groups:
            answer(sync_consumer_group(self.consumer, request))
        else:
            self.classic.sync(request, answer)

    def heartbeat(self, group_id: str, member_id: str, generation: int, group_instance_id: str | None) -> None:
        """Process a Heartbeat request. Raises BrokerError rebalance_in_progress if the member has to join again."""
        if group_id in self.consumer.groups:
            heartbeat_to_consumer_group(self.consumer, group_id, member_id, generation, group_instance_id)
        else:
            self.classic.heartbeat(group_id, member_id, generation, group_instance_id)

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> list[ErrorCode]:
        """Return an error code for each member, in their order. Raises BrokerError."""
        if group_id in self.consumer.groups:
            codes: list[ErrorCode] = self._commit(leave_consumer_group(self.consumer, group_id, leaving))
            return codes
        return self.classic.leave(group_id, leaving)

    def commit(self, request: CommitRequest, prepared: PreparedCommit) -> list[ErrorCode]:
        """Commit offsets and return an error code for each partition, in their order.

        Raises:
            BrokerError: If the whole request is refused.
        """
        group = self.classic.groups.get(request.group_id) or self.consumer_or_streams_group(request.group_id)
        if isinstance(group, ClassicGroup):
            group.check_commit(request)
        elif group is not None:
            offset_validation.check_commit(group, request)
        elif request.generation >= 0:
            code = ErrorCode.group_id_not_found if request.supports_group_id_not_found else ErrorCode.illegal_generation
            raise BrokerError(code, f"there is no group {request.group_id!r}")
        if isinstance(group, ClassicGroup) and request.producer is None and request.member_id in group.members:
            self.classic.restart_session(group, group.members[request.member_id])  # a commit extends the session
        if not prepared.records:
            return prepared.codes
        apply = partial(self._apply_commit, request, prepared)
        result: GroupResult[list[ErrorCode]] = CoordinatorResult(
            prepared.records, prepared.codes, [apply], transaction=request.producer
        )
        codes: list[ErrorCode] = self._commit(result)
        return codes

    def _apply_commit(self, request: CommitRequest, prepared: PreparedCommit) -> None:
        if self.type_of(request.group_id) is None:
            _log.info("group %.200r: a simple group, which only commits", request.group_id)
            self.classic.groups[request.group_id] = ClassicGroup(request.group_id, self._now_ms)
        for key, value in prepared.committed:
            if request.producer is None:
                self.offsets.put(key, value)
            else:
                self.offsets.put_pending(request.producer.producer_id, key, value)

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """Delete committed offsets and return an error code for each (topic, partition), in their order.

        Raises:
            BrokerError: group_id_not_found, non_empty_group.
        """
        group = self._require_committing_group(group_id)
        if (
            isinstance(group, ClassicGroup)
            and group.state is not ClassicGroupState.EMPTY
            and group.protocol_type != PROTOCOL_TYPE
        ):
            raise BrokerError(ErrorCode.non_empty_group, f"group {group_id!r} is {group.state.value}")
        codes: list[ErrorCode] = []
        deleted: list[OffsetKey] = []
        for topic, partition in partitions:
            if group.is_subscribed_to(topic):
                codes.append(ErrorCode.group_subscribed_to_topic)
                continue
            codes.append(ErrorCode.none)
            key = OffsetKey(group_id, topic, partition)
            if self.offsets.get(key) is not None or self.offsets.is_pending(key):
                deleted.append(key)
        self._remove_offsets(deleted)
        return codes

    def delete(self, group_id: str) -> None:
        """Delete a group and its offsets.

        Raises:
            BrokerError: group_id_not_found, non_empty_group.
        """
        group = self._require_committing_group(group_id)
        if group.state not in (ClassicGroupState.EMPTY, ModernGroupState.EMPTY):
            raise BrokerError(ErrorCode.non_empty_group, f"group {group_id!r} is {group.state.value}")
        self._remove_offsets(self.offsets.keys(group_id))
        self._remove_group(group)

    def list_groups(self) -> list[ListedGroup]:
        """Return the groups of all types."""
        listed = [
            ListedGroup(group.group_id, group.protocol_type or "", group.state.value)
            for group in self.classic.groups.values()
        ]
        for group_type, groups in self._by_type.items():
            name = group_type.value
            listed += [ListedGroup(group.group_id, name, group.state.value, name) for group in groups.groups.values()]
        return listed

    def classic_group(self, group_id: str) -> ClassicGroup:
        """Return a classic group. Raises BrokerError group_id_not_found."""
        group = self.classic.groups.get(group_id)
        if group is None:
            message = "not found." if self.type_of(group_id) is None else "is not a classic group."
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} {message}")
        return group

    def _require_committing_group(self, group_id: str) -> CommittingGroup:
        group = self.classic.groups.get(group_id) or self.consumer_or_streams_group(group_id)
        if group is None:
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        return group

    def expire(self) -> None:
        """Remove expired offsets, and empty groups without offsets. Raises BrokerError."""
        now_ms = self._now_ms()
        retention_ms = self._config.offsets_retention_minutes * 60_000
        for group in self.committing_groups():
            self._remove_offsets(expired_offsets(group, self.offsets, now_ms, retention_ms))
            group_id = group.group_id
            has_offsets = self.offsets.of_group(group_id) or self.offsets.has_open_transaction(group_id)
            if group.state in (ClassicGroupState.EMPTY, ModernGroupState.EMPTY) and not has_offsets:
                self._remove_group(group)

    def forget_topics(self, topics: Collection[str]) -> Iterator[None]:
        """Remove the offsets of deleted topics, one group in each step. Raises BrokerError."""
        for group_id in list(self.offsets.group_ids()):
            keys = self.offsets.keys(group_id, topics)
            if keys:
                self._remove_offsets(keys)
            yield

    def forget_shared_topics(self, topic_ids: Collection[UUID]) -> None:
        """Remove the share partitions of deleted topics from share groups. Raises BrokerError."""
        for group in list(self.share.groups.values()):
            self._commit(forget_deleted_topics(self.share, group, topic_ids))

    def _remove_offsets(self, keys: Sequence[OffsetKey]) -> None:
        for start in range(0, len(keys), MAX_TOMBSTONES_PER_BATCH):
            batch = keys[start : start + MAX_TOMBSTONES_PER_BATCH]
            records: list[Record] = [(offset_key(*key), None) for key in batch]
            self._append(records)
            for key in batch:
                self.offsets.remove(key)

    def _remove_group(self, group: CommittingGroup) -> None:
        match group:
            case ClassicGroup():
                self._append([(group_key(group.group_id), None)])
                self.classic.remove_group(group)
            case ConsumerGroup():
                self._commit(consumer_group_members.remove_group(self.consumer, group))
            case StreamsGroup():
                self._commit(streams_group_members.remove_group(self.streams, group))
