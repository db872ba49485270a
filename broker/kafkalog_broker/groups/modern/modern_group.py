"""State that consumer, share and streams groups have in common (Kafka's ModernGroup and ModernGroupMember)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, Protocol, Self, TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_records import (
    ClassicMetadata,
    GroupRecord,
    GroupType,
    MemberState,
    Owned,
    Partitions,
    RecordKind,
    current_assignment_fields,
)

JOIN_GROUP_EPOCH = 0  # member epoch of a heartbeat that joins, or joins again
LEAVE_GROUP_EPOCH = -1  # member epoch of a heartbeat that leaves for good
LEAVE_GROUP_STATIC_EPOCH = -2  # member epoch of a static member that leaves and will be back
_FIRST_EPOCH = 1


class ModernGroupState(Enum):
    """State of a group. The value is the name in ListGroups."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """Topics of a streams group's topology are missing, or have partition counts that do not fit."""
    ASSIGNING = "Assigning"  # the target assignment is older than the group epoch
    RECONCILING = "Reconciling"  # members have not reached the target assignment yet
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ModernMember:
    """A member. Replaced on every change, never modified.

    Attributes:
        topics: Names of the topics that it subscribes to by name.
        assigned: Partitions by topic ID; tasks by TasksKey in streams groups.
    """

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: Mapping[Any, Collection[int]] = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


@dataclass(frozen=True, slots=True)
class ReconcilingMember(ModernMember):
    """A member of a group in which a partition or task has one owner, which revokes it before another member gets it.

    Attributes:
        assigned: Assignment epoch of each partition or task.
        pending_revocation: Partitions or tasks that the member has to revoke and has not revoked yet, like `assigned`.
        classic: None unless the member uses JoinGroup and SyncGroup.
    """

    rebalance_timeout_ms: int = -1
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)
    classic: ClassicMetadata | None = None


MemberT = TypeVar("MemberT", bound=ModernMember)
IndexedT = TypeVar("IndexedT", bound=ModernMember, contravariant=True)


def with_reported_fields(member: MemberT, **stated: Any) -> MemberT:
    """Return the member with the stated fields; None means unchanged.

    Returns the same object if nothing changes, as in nearly every heartbeat.
    """
    if all(value is None or value == getattr(member, name) for name, value in stated.items()):
        return member
    return replace(member, **{name: value for name, value in stated.items() if value is not None})


class MemberIndex(Protocol[IndexedT]):
    """Index over the members of a group, which the group updates with every change."""

    def add(self, member: IndexedT, /) -> None: ...

    def discard(self, member: IndexedT, /) -> None: ...


class ModernGroup(Generic[MemberT]):
    """A group to whose members the coordinator assigns partitions or tasks, in the responses to heartbeats.

    Changed only by `replay`. A load replays the latest record of each key, in any order.
    """

    group_type: GroupType

    def __init__(self, group_id: str, new_member: type[MemberT], *indexes: MemberIndex[MemberT]) -> None:
        """Create a group without members.

        Args:
            new_member: Makes a member from its ID.
            indexes: Updated with every member that is put or removed.
        """
        self.group_id = group_id
        self.epoch = _FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = _FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, MemberT] = {}
        self.static_members: dict[str, str] = {}  # group.instance.id to member ID
        self.target: dict[str, Partitions] = {}  # target assignment by member ID
        self.subscribed_topics: Counter[str] = Counter()  # number of members that subscribe to each topic by name
        self.hashed_topics_generation = -1
        """Generation of the broker's topics when the metadata hash was last computed; -1 if never."""
        self._new_member = new_member
        self._indexes = indexes

    def snapshot(self) -> Self:
        """Return a copy for another thread, with copies of all dictionaries."""
        copied = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict):
                setattr(copied, name, value.copy())
        return copied

    def member(self, member_id: str) -> MemberT:
        """Return a member. Raises BrokerError unknown_member_id."""
        member = self.members.get(member_id)
        if member is None:
            raise BrokerError(
                ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> MemberT | None:
        if instance_id is None or instance_id not in self.static_members:
            return None
        return self.members.get(self.static_members[instance_id])

    def put(self, member: MemberT) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._remove_from_indexes(before)
        self.members[member.member_id] = member
        self.subscribed_topics.update(member.topics)
        for index in self._indexes:
            index.add(member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._remove_from_indexes(member)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)

    def _remove_from_indexes(self, member: MemberT) -> None:
        subtract(self.subscribed_topics, member.topics)
        for index in self._indexes:
            index.discard(member)

    def target_of(self, member: MemberT) -> Partitions:
        """Return the target assignment of a member. A static member takes over the target of the one it replaces."""
        instance_id = member.instance_id
        member_id = member.member_id if instance_id is None else self.static_members.get(instance_id, "")
        return self.target.get(member_id, {})

    def subscribed_topics_after(self, leaving: Iterable[MemberT], joining: Iterable[MemberT] = ()) -> set[str]:
        """Return the topics that members subscribe to by name after some have left and others have joined."""
        topics = self.subscribed_topics.copy()
        for member in leaving:
            topics.subtract(member.topics)
        for member in joining:
            topics.update(member.topics)
        return set(+topics)

    def replay(self, record: GroupRecord) -> None:
        value = record.value
        match record.kind:
            case RecordKind.EPOCH:
                self.epoch, self.metadata_hash, *_ = value
            case RecordKind.TARGET_EPOCH:
                self.assignment_epoch, self.assignment_timestamp_ms = (LEAVE_GROUP_EPOCH, 0) if value is None else value
            case RecordKind.TARGET if value is None:
                self.target.pop(record.name, None)
            case RecordKind.TARGET:
                self.target[record.name] = value
            case RecordKind.MEMBER if value is None:
                self.remove(record.name)
            case RecordKind.CURRENT if value is None:
                if (member := self.members.get(record.name)) is not None:
                    unassigned = current_assignment_fields(self.group_type, self._new_member(""))
                    unassigned |= {"epoch": LEAVE_GROUP_EPOCH, "previous_epoch": LEAVE_GROUP_EPOCH}
                    self.put(replace(member, **unassigned))
            case RecordKind.MEMBER | RecordKind.CURRENT:
                self.put(replace(self.members.get(record.name) or self._new_member(record.name), **value))


def assignment_state(group: ModernGroup[Any]) -> ModernGroupState:
    """Return the state of a consumer or streams group, as far as members and epochs determine it."""
    if not group.members:
        return ModernGroupState.EMPTY
    if group.epoch > group.assignment_epoch:
        return ModernGroupState.ASSIGNING
    if all(member.is_reconciled_to(group.assignment_epoch) for member in group.members.values()):
        return ModernGroupState.STABLE
    return ModernGroupState.RECONCILING


def subtract(counts: Counter[str], keys: Iterable[str]) -> None:
    """Decrement the count of each key, and remove keys whose count becomes 0."""
    for key in keys:
        counts[key] -= 1
        if counts[key] <= 0:
            del counts[key]
