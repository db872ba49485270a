"""ShareGroupHeartbeat (GroupMetadataManager.shareGroupHeartbeat): the records that it writes, and the answer.

A member that comes, goes or subscribes anew raises the group's epoch; the next target assignment, at most one every
share.assignment.interval.ms, is of that epoch, and each member has what it says from its next heartbeat on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import Record
from kafkalog_broker.coordinator.java_order import group_hash, topic_hash
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.share.membership import group_records as records
from kafkalog_broker.share.membership.group_records import CurrentAssignment, MemberMetadata, TopicInfo
from kafkalog_broker.share.membership.share_group import Assignment, KnownTopic, Member, ShareGroup, Topics, assign
from kafkalog_broker.share.membership.state_partitions import GroupSettings, missing, with_initializing

JOIN_EPOCH, LEAVE_EPOCH = 0, -1


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """topics: None, when the member says nothing new."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    topics: Sequence[str] | None
    client_id: str
    client_host: str


@dataclass(slots=True)
class Beaten:
    """assigned: None when the answer does not say it. initialize: share partitions whose state is to be begun, with
    the state epoch."""

    member_epoch: int
    assigned: Assignment | None = None
    records: list[Record] = field(default_factory=list)
    initialize: Mapping[UUID, TopicInfo] = field(default_factory=dict)
    state_epoch: int = 0


def check(beat: Heartbeat) -> None:
    """Raises BrokerError invalid_request."""
    for text, what in ((beat.member_id, "MemberId"), (beat.group_id, "GroupId"), (beat.rack_id, "RackId")):
        if text is not None and not text.strip():
            raise BrokerError(ErrorCode.invalid_request, f"{what} can't be empty.")
    if beat.member_epoch == JOIN_EPOCH and not beat.topics:
        raise BrokerError(ErrorCode.invalid_request, "SubscribedTopicNames must be set in first request.")
    if beat.member_epoch < LEAVE_EPOCH:
        raise BrokerError(ErrorCode.invalid_request, "MemberEpoch is invalid.")


def beat(
    group: ShareGroup, said: Heartbeat, topics: Topics, settings: GroupSettings, rack: str | None, now_ms: int
) -> Beaten:
    """Raises BrokerError: unknown_member_id, group_max_size_reached, fenced_member_epoch; then nothing has changed."""
    return _Beating(group, said, topics, settings, rack, now_ms).run()


def leave(group: ShareGroup, member_id: str, topics: Topics, rack: str | None) -> list[Record]:
    """Records for a member that leaves, or whose session has timed out."""
    name = group.group_id
    tombstones = [
        records.tombstone(kind, name, member_id) for kind in (records.CURRENT, records.TARGET, records.MEMBER)
    ]
    hashed = _hash(_known(topics, group.topics(but=member_id)), rack)
    return [*tombstones, records.group_record(name, group.epoch + 1, hashed)]


def _known(topics: Topics, names: Collection[str]) -> list[KnownTopic]:
    return [topic for name in sorted(names) if (topic := topics.get(name)) is not None]


def _hash(topics: Sequence[KnownTopic], rack: str | None) -> int:
    return group_hash((topic.name, topic_hash(topic.name, topic.id, topic.partitions, rack)) for topic in topics)


class _Beating:
    def __init__(
        self, group: ShareGroup, said: Heartbeat, topics: Topics, settings: GroupSettings, rack: str | None, now_ms: int
    ) -> None:
        self._group = group
        self._said = said
        self._topics = topics
        self._settings = settings
        self._rack = rack
        self._now_ms = now_ms
        self._records: list[Record] = []
        self._assignment_epoch = group.assignment_epoch
        self._target = group.target.get(said.member_id, {})

    def run(self) -> Beaten:
        group, said = self._group, self._said
        before = self._member()
        metadata = self._metadata(before.metadata)
        is_new = said.member_id not in group.members
        bump = metadata.topics != before.metadata.topics
        if metadata != before.metadata:
            self._records.append(records.member_record(group.group_id, said.member_id, metadata))
        if group.assignment_epoch >= group.epoch and self._initialized_not_assigned():
            bump = True
        names = group.topics(but=said.member_id, and_of=metadata.topics)
        epoch, bump = self._epoch(names, bump)
        if self._assignment_epoch < epoch and self._may_assign():
            self._assign(epoch, metadata, names, len(group.members) + is_new)
        current = self._reconciled(before.current, metadata, has_changed=bump)
        if current != before.current:
            self._records.append(records.current_record(group.group_id, said.member_id, current))
        answer = Beaten(current.member_epoch, records=self._records, state_epoch=epoch)
        if said.member_epoch == JOIN_EPOCH or said.topics is not None or current.assigned != before.current.assigned:
            answer.assigned = dict(current.assigned)
        answer.initialize = missing(group, names, self._topics, self._now_ms, self._settings.initialize_retry_ms)
        if answer.initialize:
            self._records.append(
                records.state_partitions_record(group.group_id, with_initializing(group.state, answer.initialize))
            )
        return answer

    def _member(self) -> Member:
        group, said = self._group, self._said
        member = group.members.get(said.member_id)
        if member is None:
            if len(group.members) >= self._settings.max_size:
                raise BrokerError(
                    ErrorCode.group_max_size_reached,
                    f"The share group has reached its maximum capacity of {self._settings.max_size} members.",
                )
            if said.member_epoch != JOIN_EPOCH:
                raise BrokerError(
                    ErrorCode.unknown_member_id, f"Member {said.member_id} is not a member of group {group.group_id}."
                )
            return Member()
        _check_epoch(member.current, said.member_epoch)
        return member

    def _metadata(self, before: MemberMetadata) -> MemberMetadata:
        said = self._said
        return MemberMetadata(
            before.rack_id if said.rack_id is None else said.rack_id,
            said.client_id,
            said.client_host,
            before.topics if said.topics is None else tuple(sorted(set(said.topics))),
        )

    def _initialized_not_assigned(self) -> bool:
        """True if share partitions have got their state since they were last assigned."""
        group = self._group
        if not group.members or group.state is None or not group.state.initialized:
            return False
        return not group.all_assigned()

    def _epoch(self, names: Collection[str], bump: bool) -> tuple[int, bool]:
        """The group's epoch from now on, and whether it is a new one."""
        group = self._group
        topics = _known(self._topics, names)
        seen = tuple((topic.name, topic.id, topic.partitions) for topic in topics)
        if not bump and seen == group.topics_seen:
            return group.epoch, False
        hashed = _hash(topics, self._rack)
        if not bump and hashed == group.metadata_hash:
            group.topics_seen = seen
            return group.epoch, False
        self._records.append(records.group_record(group.group_id, group.epoch + 1, hashed))
        return group.epoch + 1, True

    def _may_assign(self) -> bool:
        interval, at = self._settings.assignment_interval_ms, self._group.assigned_at
        return not at or not interval or self._now_ms >= at + interval

    def _assign(self, epoch: int, metadata: MemberMetadata, names: Collection[str], members: int) -> None:
        group, me = self._group, self._said.member_id
        ids = {name: topic.id for name in names if (topic := self._topics.get(name)) is not None}
        subscribed = {member_id: member.metadata.topics for member_id, member in group.members.items()}
        subscribed[me] = metadata.topics
        state = group.state
        partitions = {} if state is None else {topic: info.partitions for topic, info in state.initialized.items()}
        target = assign(
            {member: [ids[name] for name in mine if name in ids] for member, mine in subscribed.items()},
            partitions,
            group.target,
        )
        for member in subscribed:
            mine = target.get(member, {})
            if group.target.get(member) != mine:
                self._records.append(records.target_record(group.group_id, member, mine))
        self._records.append(records.target_epoch_record(group.group_id, epoch, self._now_ms))
        self._assignment_epoch, self._target = epoch, target.get(me, {})

    def _reconciled(
        self, before: CurrentAssignment, metadata: MemberMetadata, *, has_changed: bool
    ) -> CurrentAssignment:
        epoch = self._assignment_epoch
        if not has_changed and before.member_epoch == epoch:
            return before
        ids = {topic.id for name in metadata.topics if (topic := self._topics.get(name)) is not None}
        assigned = {topic: indexes for topic, indexes in self._target.items() if topic in ids}
        if epoch != before.member_epoch:
            return CurrentAssignment(epoch, before.member_epoch, assigned)
        return replace(before, assigned=assigned)


def _check_epoch(current: CurrentAssignment, received: int) -> None:
    known, previous = current.member_epoch, current.previous_member_epoch
    if received in (JOIN_EPOCH, known):
        return
    if received > known:
        raise BrokerError(
            ErrorCode.fenced_member_epoch,
            f"The share group member has a greater member epoch ({received}) than the one known by the group "
            f"coordinator ({known}). The member must abandon all its partitions and rejoin.",
        )
    if received != previous:
        raise BrokerError(
            ErrorCode.fenced_member_epoch,
            f"The share group member has a smaller member epoch ({received}) than the one known by the group "
            f"coordinator ({known}), and it does not match the previous member epoch ({previous}). The member must "
            "abandon all its partitions and rejoin.",
        )
