"""The share groups (KIP-932) of one partition of __consumer_offsets (Kafka's GroupMetadataManager).

Beyond what groups have in common (group_manager.py): only partitions that have state are assigned, and the state of
those that members subscribe to is begun.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_manager import (
    GroupChanges,
    HeartbeatRequest,
    MemberResult,
    ModernGroupManager,
    check_epoch,
    check_not_blank,
)
from kafkalog_broker.groups.modern.group_records import (
    NO_STATE,
    GroupRecord,
    GroupType,
    Partitions,
    RecordKind,
    SharedTopic,
    StatePartitions,
)
from kafkalog_broker.groups.modern.group_settings import ShareGroupSettings, share_group_settings
from kafkalog_broker.groups.modern.modern_group import LEAVING, ModernGroup, ModernGroupState, ModernMember


class ShareGroup(ModernGroup[ModernMember]):
    """Several members may have the same partition, and nobody waits for one."""

    group_type = GroupType.SHARE
    member_class = ModernMember

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.partitions = NO_STATE
        self.initializing_since: dict[UUID, int] = {}
        """When the state of a topic's partitions was begun, in ms."""
        self._all_assigned: bool | None = None

    @property
    def state(self) -> ModernGroupState:
        return ModernGroupState.STABLE if self.members else ModernGroupState.EMPTY

    def last_records(self) -> Iterable[tuple[RecordKind, str]]:
        return [(RecordKind.STATE_PARTITIONS, ""), (RecordKind.EPOCH, "")]

    def replay(self, record: GroupRecord) -> None:
        self._all_assigned = None
        if record.kind is RecordKind.STATE_PARTITIONS:
            self.partitions = record.value or NO_STATE
        else:
            super().replay(record)

    def all_assigned(self) -> bool:
        """True if all initialized partitions of subscribed topics are in the target; cached: every heartbeat asks."""
        if self._all_assigned is None:
            assigned: dict[UUID, set[int]] = {}
            for target in self.target.values():
                for topic, indexes in target.items():
                    assigned.setdefault(topic, set()).update(indexes)
            self._all_assigned = all(
                shared.name not in self.names or assigned.get(topic) == set(shared.partitions)
                for topic, shared in self.partitions.initialized.items()
            )
        return self._all_assigned


SharedTopics = Mapping[UUID, SharedTopic]


def merged(left: SharedTopics, right: SharedTopics) -> dict[UUID, SharedTopic]:
    topics = dict(left)
    for topic, shared in right.items():
        present = topics[topic].partitions if topic in topics else ()
        topics[topic] = SharedTopic(shared.name, tuple(sorted({*present, *shared.partitions})))
    return topics


def with_initializing(state: StatePartitions, more: SharedTopics) -> StatePartitions:
    return StatePartitions(merged(state.initializing, more), state.initialized, _without(state.deleting, more))


def added_partitions(state: StatePartitions, missing: SharedTopics) -> dict[UUID, SharedTopic]:
    """Partitions that a topic got after the group had begun to share it.

    A group is to get all their records. With share.auto.offset.reset=latest, those that were produced before the
    state of the partition was there would be skipped (KAFKA-20742).
    """
    known = {
        topic: shared for topic, shared in missing.items() if topic in state.initialized or topic in state.initializing
    }
    tried_again = _without(state.initializing, state.initialized)  # the first partitions that the group shares
    return _subtracted(known, tried_again)


def _subtracted(topics: SharedTopics, less: SharedTopics) -> dict[UUID, SharedTopic]:
    left = {}
    for topic, shared in topics.items():
        gone = less[topic].partitions if topic in less else ()
        if partitions := tuple(index for index in shared.partitions if index not in gone):
            left[topic] = SharedTopic(shared.name, partitions)
    return left


def _without(known: Mapping[UUID, Any], topics: Collection[UUID]) -> dict[UUID, Any]:
    return {topic: value for topic, value in known.items() if topic not in topics}


ASSIGNOR = "simple"
ShareResult = MemberResult[ShareGroup, ModernMember]


class ShareGroupManager(ModernGroupManager[ShareGroup, ModernMember]):
    group_class = ShareGroup

    def settings(self, group_id: str) -> ShareGroupSettings:
        return share_group_settings(self.context.config, self.context.overrides(group_id))

    def replay(self, record: GroupRecord) -> None:
        super().replay(record)
        if record.kind is RecordKind.STATE_PARTITIONS and record.value is not None:
            since = self.context.clock.now_ms()
            self.groups[record.group_id].initializing_since = dict.fromkeys(record.value.initializing, since)

    # ---- heartbeats

    def check_request(self, request: HeartbeatRequest) -> None:
        check_not_blank(((request.member_id, "MemberId"), (request.group_id, "GroupId"), (request.rack_id, "RackId")))
        if request.member_epoch == 0 and not request.topics:
            raise BrokerError(ErrorCode.invalid_request, "SubscribedTopicNames must be set in first request.")
        if request.member_epoch < LEAVING:
            raise BrokerError(ErrorCode.invalid_request, "MemberEpoch is invalid.")

    def member_for(self, result: ShareResult, request: HeartbeatRequest) -> ModernMember:
        group, member_id, epoch = result.group, request.member_id, request.member_epoch
        if epoch == 0 and member_id not in group.members:
            return ModernMember(member_id)
        member = group.member(member_id)
        previous = member.previous_epoch
        smaller = f", and it does not match the previous member epoch ({previous})"
        check_epoch(GroupType.SHARE, member, epoch, takes_previous=True, if_smaller=smaller)
        return member

    def next_epoch(self, result: ShareResult, request: HeartbeatRequest) -> int:
        """It rises also when share partitions have got their state since they were last assigned; then topics that are
        gone are taken from a member before there is a new target assignment."""
        group = result.group
        is_assigned = group.assignment_epoch >= group.epoch
        has_new_state = is_assigned and bool(group.members) and not group.all_assigned()
        epoch = self.bump_epoch(result, bump=has_new_state or result.anew)
        result.anew |= epoch > group.epoch
        return epoch

    def reconciled(self, result: ShareResult, target_epoch: int, target: Partitions) -> ModernMember:
        member = result.updated
        topics = map(self.context.topics.get, member.topics)
        subscribed = {topic.id for topic in topics if topic is not None}
        assigned = {topic: indexes for topic, indexes in target.items() if topic in subscribed}
        if target_epoch == member.epoch:
            return replace(member, assigned=assigned)
        return replace(member, epoch=target_epoch, previous_epoch=member.epoch, assigned=assigned)

    def assignor(self, group: ShareGroup, members: Collection[ModernMember]) -> str:
        return ASSIGNOR

    def assignable(self, group: ShareGroup, topic_id: UUID) -> Sequence[int]:
        shared = group.partitions.initialized.get(topic_id)
        return () if shared is None else shared.partitions

    def finish_heartbeat(self, result: ShareResult, epoch: int, request: HeartbeatRequest) -> None:
        """Begin the state of share partitions that members subscribe to."""
        group, member, updated = result.group, result.member, result.updated
        subscribes_anew = member.topics != updated.topics
        missing = self._without_state(group, group.names_after([member], [updated]) if subscribes_anew else group.names)
        if missing:
            result.put(RecordKind.STATE_PARTITIONS, "", with_initializing(group.partitions, missing))
            added = added_partitions(group.partitions, missing)
            for topics, from_start in ((_subtracted(missing, added), False), (added, True)):
                if topics:
                    result.then(partial(self.context.initialize, group.group_id, epoch, topics, from_start))

    def _without_state(self, group: ShareGroup, names: Collection[str]) -> dict[UUID, SharedTopic]:
        """Topics' partitions without state, not begun in the last group.share.initialize.retry.interval.ms."""
        state, now_ms = group.partitions, self.context.clock.now_ms()
        retry_ms = self.context.config.group_share_initialize_retry_interval_ms
        under_way = {
            topic: shared
            for topic, shared in state.initializing.items()
            if now_ms - group.initializing_since.get(topic, now_ms) < retry_ms
        }
        present = merged(state.initialized, under_way)
        missing = {}
        for name in names:
            topic = self.context.topics.get(name)
            if topic is not None:
                indexes = present[topic.id].partitions if topic.id in present else ()
                if len(indexes) < topic.partitions:
                    left = tuple(index for index in range(topic.partitions) if index not in indexes)
                    missing[topic.id] = SharedTopic(name, left)
        return missing

    # ---- which share partitions have state. Each raises BrokerError where it cannot be written.

    def end_initializing(self, group_id: str, topics: SharedTopics, *, done: bool = True) -> None:
        group = self.groups.get(group_id)
        if group is None or not (done or group.partitions.initializing):
            return
        state = group.partitions
        initializing = _subtracted(state.initializing, topics)
        initialized = merged(state.initialized, topics) if done else state.initialized
        self._put_state(group_id, StatePartitions(initializing, initialized, state.deleting))

    def begin_altering(self, group_id: str, topics: SharedTopics) -> int:
        """Offsets of these are about to be set, of a group without members, which begins to exist by that. The state
        epoch. Raises BrokerError non_empty_group."""
        group = self._empty(self.groups.get(group_id) or ShareGroup(group_id))
        if topics:
            self._put_state(group_id, with_initializing(group.partitions, topics))
        return group.epoch

    def begin_deleting(self, group_id: str, topics: Collection[UUID]) -> dict[UUID, SharedTopic]:
        """Those of `topics` whose state is to be deleted. Raises BrokerError: group_id_not_found, non_empty_group."""
        state = self._empty(self.group(group_id)).partitions
        if state == NO_STATE:
            return {}
        present = {topic: shared for topic, shared in state.initialized.items() if topic in topics}
        present |= self._whole(topic for topic in topics if topic in state.deleting)
        deleting = {**state.deleting, **{topic: shared.name for topic, shared in present.items()}}
        left = _without(state.initialized, present)
        self._put_state(group_id, StatePartitions(state.initializing, left, deleting))
        return present

    def set_deleted(self, group_id: str, topics: Collection[UUID]) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            state = group.partitions
            self._put_state(group_id, state._replace(deleting=_without(state.deleting, topics)))

    def all_with_state(self, group_id: str) -> dict[UUID, SharedTopic]:
        """For a group that is deleted: whose state has to go first."""
        state = self._empty(self.group(group_id)).partitions
        if state == NO_STATE:
            return {}
        present = merged(merged(state.initialized, state.initializing), self._whole(state.deleting))
        self._put_state(group_id, StatePartitions({}, {}, {topic: shared.name for topic, shared in present.items()}))
        return present

    def _whole(self, topic_ids: Iterable[UUID]) -> dict[UUID, SharedTopic]:
        """All partitions of those topics that exist."""
        topics = map(self.context.topics.by_id, topic_ids)
        return {
            topic.id: SharedTopic(topic.name, tuple(range(topic.partitions))) for topic in topics if topic is not None
        }

    def forget_topics(self, topics: Collection[UUID]) -> None:
        for group in list(self.groups.values()):
            left = StatePartitions(*(_without(known, topics) for known in group.partitions))
            if left != group.partitions:
                self._put_state(group.group_id, left)

    def _empty(self, group: ShareGroup) -> ShareGroup:
        if group.members:
            raise BrokerError(ErrorCode.non_empty_group, "The group is not empty.")
        return group

    def _put_state(self, group_id: str, state: StatePartitions) -> None:
        result = GroupChanges(GroupType.SHARE, group_id)
        result.put(RecordKind.STATE_PARTITIONS, "", state)
        self.commit(result)
