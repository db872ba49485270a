"""The groups of one partition of __consumer_offsets: members, offsets, and what administrators ask of them.

Kafka's GroupCoordinatorShard. What changes a group or an offset is in the log before it is in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from kafkalog_broker.coordinator.coordinator_record import MAX_TOMBSTONES_PER_BATCH, Record
from kafkalog_broker.coordinator.coordinator_runtime import Append
from kafkalog_broker.coordinator.coordinator_timer import Commit, CoordinatorTimer
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import Group, GroupState
from kafkalog_broker.groups.classic.classic_group_manager import ClassicGroupManager
from kafkalog_broker.groups.classic.consumer_protocol import PROTOCOL_TYPE
from kafkalog_broker.groups.classic.messages import CommitRequest, JoinAnswer, JoinCallback, JoinRequest, ListedGroup
from kafkalog_broker.groups.classic.offset_records import (
    OffsetKey,
    group_key,
    offset_key,
)
from kafkalog_broker.groups.consumer.classic_members import ClassicMembers
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup
from kafkalog_broker.groups.consumer.consumer_group_manager import ConsumerGroupManager
from kafkalog_broker.groups.consumer.reconciling import ReconcilingGroup
from kafkalog_broker.groups.group_loader import LoadedPartition
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_record_codec import encode
from kafkalog_broker.groups.modern.group_records import GroupRecord, GroupType
from kafkalog_broker.groups.modern.modern_group import ModernGroupState
from kafkalog_broker.groups.offset_commit import PreparedCommit
from kafkalog_broker.groups.offset_expiration import AnyGroup, expired_offsets
from kafkalog_broker.groups.offset_store import OffsetStore
from kafkalog_broker.groups.share.share_group_manager import ShareGroupManager
from kafkalog_broker.groups.streams.streams_group_manager import StreamsGroup, StreamsGroupManager

log = logging.getLogger(__name__)


class GroupShard:
    """All that one coordinator knows of one partition. Not thread-safe."""

    def __init__(self, loaded: LoadedPartition, context: GroupContext, append: Append, commit: Commit) -> None:
        """append, commit: of the runtime, to the partition."""
        self.offsets: OffsetStore = loaded.offsets
        self._config, self._now_ms = context.config, context.clock.now_ms
        self._append = append
        self.timer = CoordinatorTimer(context.scheduler, commit)
        self.classic = ClassicGroupManager(context, self.timer, append)
        self.groups = self.classic.groups
        self.consumer = ConsumerGroupManager(context, self.timer, commit, self.type_of, self.classic)
        self._classic_members = ClassicMembers(self.consumer)
        self.share = ShareGroupManager(context, self.timer, commit, self.type_of)
        self.streams = StreamsGroupManager(context, self.timer, commit, self.type_of, self.classic)
        for group_id, record in loaded.groups.items():
            self.groups[group_id] = Group.from_record(group_id, record, self._now_ms)
        for manager in (self.consumer, self.share, self.streams):
            group_type = manager.group_class.group_type
            manager.load([record for record in loaded.records if record.group_type is group_type])
        reconciling = self.consumer.groups.keys() | self.streams.groups.keys()
        for group_id in reconciling:
            self.groups.pop(group_id, None)
        for group_id in self.offsets.group_ids() - self.groups.keys() - reconciling:
            self.groups[group_id] = Group(group_id, self._now_ms)
        for group in self.groups.values():
            for member in group.members.values():  # they get the time of a session to be heard of
                self.classic.expect_heartbeat(group, member)
            if len(group.members) > self._config.group_max_size:
                self.classic.prepare(group, f"{len(group.members)} members, at most {self._config.group_max_size} now")

    def encode(self, record: GroupRecord | Record) -> Record:
        return encode(record) if isinstance(record, GroupRecord) else record

    def replay(self, offset: int, record: GroupRecord | Record) -> None:
        """Apply a record of a consumer, share or streams group. Classic groups are changed by who writes them."""
        if isinstance(record, GroupRecord):
            managers = (self.consumer, self.share, self.streams)
            next(each for each in managers if each.group_class.group_type is record.group_type).replay(record)

    def type_of(self, group_id: str) -> GroupType | None:
        """None where there is no group of that id."""
        if group_id in self.groups:
            return GroupType.CLASSIC
        managers = (self.consumer, self.share, self.streams)
        return next((each.group_class.group_type for each in managers if group_id in each.groups), None)

    def reconciling(self, group_id: str) -> ReconcilingGroup[Any] | None:
        """A consumer or streams group."""
        return self.consumer.groups.get(group_id) or self.streams.groups.get(group_id)

    def close(self) -> None:
        """The partition goes to another coordinator, or the broker stops: who waits is answered to look for it."""
        self.timer.cancel_all()
        for group in list(self.groups.values()):
            self.classic.forget(group, ErrorCode.not_coordinator)

    # members that speak the classic protocol, of whichever kind of group

    def join(self, request: JoinRequest, answer: JoinCallback) -> None:
        """`answer` is called once, now or when the join phase is over. Or BrokerError is raised."""
        group = self.reconciling(request.group_id)
        if group is None or group.state is ModernGroupState.EMPTY:
            if group is not None:
                self._remove_group(group)
            self.classic.join(request, answer)
        elif isinstance(group, ConsumerGroup):
            try:
                answer(self._classic_members.join(group, request))
            except BrokerError as error:
                answer(JoinAnswer(error.code))
        else:
            answer(JoinAnswer(ErrorCode.inconsistent_group_protocol))

    def classic_protocol(self, group_id: str) -> ClassicGroupManager | ClassicMembers:
        """SyncGroup, Heartbeat and LeaveGroup of a group."""
        return self._classic_members if group_id in self.consumer.groups else self.classic

    # OffsetCommit and OffsetFetch

    def commit(self, request: CommitRequest, prepared: PreparedCommit) -> list[ErrorCode]:
        """Error codes, one for each partition, in their order. Raises BrokerError when the whole request is refused."""
        group = self.groups.get(request.group_id) or self.reconciling(request.group_id)
        if group is not None:
            group.check_commit(request)
        elif request.generation >= 0:
            code = ErrorCode.group_id_not_found if request.knows_group_id_not_found else ErrorCode.illegal_generation
            raise BrokerError(code, f"there is no group {request.group_id!r}")
        producer = request.producer
        if isinstance(group, Group) and producer is None and request.member_id in group.members:
            self.classic.expect_heartbeat(group, group.members[request.member_id])  # a commit is a sign of life
        if not prepared.records:
            return prepared.codes
        self._append(prepared.records, producer)
        if group is None:
            log.info("group %.200r: a simple group, which only commits", request.group_id)
            self.groups[request.group_id] = Group(request.group_id, self._now_ms)
        for key, value in prepared.committed:
            if producer is None:
                self.offsets.put(key, value)
            else:
                self.offsets.put_pending(producer.producer_id, key, value)
        return prepared.codes

    # administration

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """Error codes, one for each (topic, partition). Raises BrokerError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._existing(group_id)
        if isinstance(group, Group) and group.state is not GroupState.EMPTY and group.protocol_type != PROTOCOL_TYPE:
            raise BrokerError(ErrorCode.non_empty_group, f"group {group_id!r} is {group.state.value}")
        codes, gone = [], []
        for topic, partition in partitions:
            if group.is_subscribed_to(topic):
                codes.append(ErrorCode.group_subscribed_to_topic)
                continue
            codes.append(ErrorCode.none)
            key = OffsetKey(group_id, topic, partition)
            if self.offsets.get(key) is not None or self.offsets.is_pending(key):
                gone.append(key)
        self._remove_offsets(gone)
        return codes

    def delete(self, group_id: str) -> None:
        """Raises BrokerError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._existing(group_id)
        if group.state not in (GroupState.EMPTY, ModernGroupState.EMPTY):
            raise BrokerError(ErrorCode.non_empty_group, f"group {group_id!r} is {group.state.value}")
        self._remove_offsets(self.offsets.keys(group_id))
        self._remove_group(group)

    def list_groups(self) -> list[ListedGroup]:
        """Groups of all types."""
        listed = [
            ListedGroup(group.group_id, group.protocol_type or "", group.state.value) for group in self.groups.values()
        ]
        for manager in (self.consumer, self.share, self.streams):
            kind = manager.group_class.group_type.value
            listed += [ListedGroup(group.group_id, kind, group.state.value, kind) for group in manager.groups.values()]
        return listed

    def classic_group(self, group_id: str) -> Group:
        """Raises BrokerError (GROUP_ID_NOT_FOUND)."""
        group = self.groups.get(group_id)
        if group is None:
            what = "not found." if self.type_of(group_id) is None else "is not a classic group."
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} {what}")
        return group

    def _existing(self, group_id: str) -> AnyGroup:
        group = self.groups.get(group_id) or self.reconciling(group_id)
        if group is None:
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        return group

    # what happens by itself

    def expire(self) -> None:
        """Remove offsets that are too old, and groups that are empty and have none left."""
        now = self._now_ms()
        for group in self.committing():
            expired = expired_offsets(group, self.offsets, now, self._config.offsets_retention_minutes * 60_000)
            self._remove_offsets(expired)
            left = self.offsets.of_group(group.group_id) or self.offsets.has_open_transaction(group.group_id)
            if group.state in (GroupState.EMPTY, ModernGroupState.EMPTY) and not left:
                self._remove_group(group)

    def forget_topics(self, topics: Collection[str]) -> Iterator[None]:
        """Remove the offsets committed to deleted topics, a group at a step. Raises BrokerError."""
        for group_id in list(self.offsets.group_ids()):
            keys = self.offsets.keys(group_id, topics)
            if keys:
                self._remove_offsets(keys)
            yield

    def _remove_offsets(self, keys: Sequence[OffsetKey]) -> None:
        for at in range(0, len(keys), MAX_TOMBSTONES_PER_BATCH):
            some = keys[at : at + MAX_TOMBSTONES_PER_BATCH]
            records: list[Record] = [(offset_key(*key), None) for key in some]
            self._append(records)
            for key in some:
                self.offsets.remove(key)

    def committing(self) -> list[AnyGroup]:
        """All groups that commit offsets."""
        return [*self.groups.values(), *self.consumer.groups.values(), *self.streams.groups.values()]

    def _remove_group(self, group: AnyGroup) -> None:
        if isinstance(group, Group):
            self._append([(group_key(group.group_id), None)])
            self.classic.remove_group(group)
        elif isinstance(group, ConsumerGroup):
            self.consumer.delete(group)
        elif isinstance(group, StreamsGroup):
            self.streams.delete(group)
