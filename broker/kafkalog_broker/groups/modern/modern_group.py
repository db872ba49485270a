"""A consumer, share or streams group in memory, as its records say it (Kafka's ModernGroup and ModernGroupMember)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, Generic, Self, TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_records import (
    CURRENT_FIELDS,
    GroupRecord,
    GroupType,
    MemberState,
    Partitions,
    RecordKind,
)

LEAVING = -1  # the member epoch of who leaves for good
LEAVING_STATIC = -2  # the member epoch of a static member that will be back
_FIRST_EPOCH = 1


class ModernGroupState(Enum):
    """The value is the name that ListGroups shows."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """Topics of a streams group's topology are missing, or not partitioned as it needs them."""
    ASSIGNING = "Assigning"  # members have changed, and the target assignment has not been made anew yet
    RECONCILING = "Reconciling"  # members are on their way to the target assignment
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ModernMember:
    """A member; replaced, never changed. topics: names that it subscribes to. assigned: by topic id, or TasksKey."""

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


M = TypeVar("M", bound=ModernMember)


class ModernGroup(Generic[M]):
    """A group whose members follow by heartbeats. `member_class` makes a member that is in no record yet."""

    group_type: ClassVar[GroupType]
    member_class: type[M]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = _FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = _FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, M] = {}
        self.static_members: dict[str, str] = {}  # group.instance.id to member id
        self.target: dict[str, Partitions] = {}
        self.names: Counter[str] = Counter()  # how many members subscribe to a topic by name
        self.is_assigning = False  # an assignment is made in the background
        self.seen_topics_version = -1
        """Version of the broker's topics when the metadata hash was last computed; -1: never."""

    @property
    def state(self) -> ModernGroupState:
        raise NotImplementedError

    def snapshot(self) -> Self:
        """Copy of the state that an assignor reads, for another thread."""
        copied = copy(self)
        copied.members, copied.static_members, copied.target = (
            dict(self.members), dict(self.static_members), dict(self.target)
        )  # fmt: skip
        return copied

    # ---- members

    def member(self, member_id: str) -> M:
        member = self.members.get(member_id)
        if member is None:
            raise BrokerError(
                ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> M | None:
        if instance_id is None or instance_id not in self.static_members:
            return None
        return self.members.get(self.static_members[instance_id])

    def put(self, member: M) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._count(before, -1)
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)

    def _count(self, member: M, by: int) -> None:
        for topic in member.topics:
            add_count(self.names, topic, by)

    def target_of(self, member: M) -> Partitions:
        """Target assignment of a member; of a static member that replaces another, that one's."""
        instance_id = member.instance_id
        member_id = member.member_id if instance_id is None else self.static_members.get(instance_id, "")
        return self.target.get(member_id, {})

    # ---- subscriptions

    def topics_of(self, member: M) -> frozenset[str]:
        """Names that a member subscribes to, whether they exist or not."""
        return member.topics

    def names_after(self, leaving: Iterable[M], joining: Iterable[M] = ()) -> set[str]:
        """Names that members subscribe to once some have gone and others come."""
        names = self.names.copy()
        for member in leaving:
            names.subtract(member.topics)
        for member in joining:
            names.update(member.topics)
        return set(+names)

    def matched_after(self, leaving: Iterable[M], joining: Iterable[M] = ()) -> set[str]:
        """Names that members subscribe to without naming them."""
        return set()

    # ---- records

    def last_records(self) -> Iterable[tuple[RecordKind, str]]:
        """Kind and name of those about no member that end a group that is removed, in Kafka's order."""
        raise NotImplementedError

    def replay(self, record: GroupRecord) -> None:
        """Take over a record. A start replays what is left of each key, so the order of records does not count."""
        value = record.value
        match record.kind:
            case RecordKind.EPOCH:
                self.epoch, self.metadata_hash, *_ = value
            case RecordKind.TARGET_EPOCH:
                self.assignment_epoch, self.assignment_timestamp_ms = (LEAVING, 0) if value is None else value
            case RecordKind.TARGET if value is None:
                self.target.pop(record.name, None)
            case RecordKind.TARGET:
                self.target[record.name] = value
            case RecordKind.MEMBER if value is None:
                self.remove(record.name)
            case RecordKind.CURRENT if value is None:
                if (member := self.members.get(record.name)) is not None:
                    nothing = values_of(self.member_class(""), CURRENT_FIELDS[self.group_type])
                    self.put(replace(member, **nothing | {"epoch": LEAVING, "previous_epoch": LEAVING}))
            case RecordKind.MEMBER | RecordKind.CURRENT:
                self.put(replace(self.members.get(record.name) or self.member_class(record.name), **value))


def values_of(member: ModernMember, fields: Iterable[str]) -> dict[str, Any]:
    """The value of a record of a member."""
    return {name: getattr(member, name) for name in fields}


def add_count(counts: Counter[str], key: str, by: int) -> None:
    counts[key] += by
    if counts[key] <= 0:
        del counts[key]
