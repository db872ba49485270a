"""A consumer group in memory: what its records say, and what follows from them (Kafka's ConsumerGroup)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import java_hash
from kafkalog_broker.coordinator.java_order import grown, in_map_order
from kafkalog_broker.errors import BrokerError, ErrorCode

# What a consumer group consists of: members, assignments and epochs, as values that are replaced and never changed.

LEAVING = -1
"""The member epoch of who leaves for good."""
LEAVING_STATIC = -2
"""The member epoch of a static member that will be back."""

Partitions = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic id: an assignment. The order of partitions is that of the record."""
Owned = Mapping[UUID, Mapping[int, int]]
"""topic id -> partition -> the epoch at which it was assigned."""


class MemberState(IntEnum):
    """How far a member is on its way to the target assignment (Kafka's MemberState)."""

    STABLE = 0
    """It has its target assignment."""
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions first, and stays in its epoch until it says so."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others still have."""
    UNKNOWN = 127
    """A state of a later release."""

    @classmethod
    def of(cls, value: int) -> MemberState:
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """Metadata of a member that still speaks JoinGroup. session_timeout_ms: its own. protocols: (name, metadata),
    best first."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member of a consumer group. `classic`: None for one that speaks
    the consumer protocol. Times in ms."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    assignor: str | None = None
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)
    classic: ClassicMember | None = None

    def at_epoch(self, epoch: int, state: MemberState, assigned: Owned, pending: Owned) -> ConsumerMember:
        """On to the next epoch, or the same again."""
        return replace(
            self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, pending_revocation=pending
        )

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def epoch_of(self, topic_id: UUID, partition: int) -> int | None:
        """The epoch at which a partition was assigned to it, also one that it is to give up; None: it is not its."""
        found = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if found is None else found


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched. version: of the broker's topics; timestamp_ms: when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class TopicInfo(NamedTuple):
    """A topic as assignments see it."""

    name: str
    topic_id: UUID
    partitions: int


NO_OWNER = -1
_FIRST_EPOCH = 1


class ConsumerGroupState(Enum):
    """The value is the name that ListGroups shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """Members have changed, and the target assignment has not been made anew yet."""
    RECONCILING = "Reconciling"
    """Members are on their way to the target assignment."""
    STABLE = "Stable"


class ConsumerGroup:
    """A consumer group (KIP-848). Members are replaced by `put` and `remove`, which keep what is counted."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = _FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = _FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.peak_members = 0
        """The most that there ever were: the order of members depends on it (java_order)."""
        self.static_members: dict[str, str] = {}
        """group.instance.id to member id."""
        self.target: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        """Expressions that have been resolved."""
        self.has_topics_record = False
        """Kafka 4.0 left the topics' metadata in the log."""
        self.seen_topics_version = -1
        """Version of the broker's topics when the metadata hash was last computed; -1: never."""
        self.classic_members = 0
        self.names: Counter[str] = Counter()
        """How many members subscribe to a topic by name."""
        self.regex_names: Counter[str] = Counter()
        """How many resolved expressions match a topic."""
        self.subscribed_regexes: Counter[str] = Counter()
        self._assigned_to: dict[UUID, dict[int, str]] = {}
        self._owner_epochs: dict[UUID, dict[int, int]] = {}

    # ---- members

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def member(self, member_id: str) -> ConsumerMember:
        """Raises BrokerError (UNKNOWN_MEMBER_ID)."""
        found = self.members.get(member_id)
        if found is None:
            raise BrokerError(
                ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return found

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None or instance_id not in self.static_members:
            return None
        return self.members.get(self.static_members[instance_id])

    def put(self, member: ConsumerMember) -> None:
        """A new member, or another version of one."""
        before = self.members.get(member.member_id)
        self._count(before, -1)
        self.members[member.member_id] = member
        self.peak_members = max(self.peak_members, len(self.members))
        self._count(member, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self._count(member, -1)
        if member is not None and member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)

    def _count(self, member: ConsumerMember | None, by: int) -> None:
        if member is None:
            return
        self.classic_members += by * (member.classic is not None)
        for topic in member.topics:
            _add(self.names, topic, by)
        if member.regex:
            _add(self.subscribed_regexes, member.regex, by)
        for owned in (member.assigned, member.pending_revocation):
            if by > 0:
                self._own(owned, member.epoch)
            else:
                self._disown(owned, member.epoch)

    def _own(self, owned: Owned, epoch: int) -> None:
        for topic, partitions in owned.items():
            epochs = self._owner_epochs.setdefault(topic, {})
            for partition in partitions:
                epochs[partition] = max(epoch, epochs.get(partition, epoch))

    def _disown(self, owned: Owned, epoch: int) -> None:
        """Except what another has taken over at another epoch (a static member that was replaced)."""
        for topic, partitions in owned.items():
            epochs = self._owner_epochs.get(topic, {})
            for partition in partitions:
                if epochs.get(partition) == epoch:
                    del epochs[partition]
            if not epochs:
                self._owner_epochs.pop(topic, None)

    def has_owner(self, topic: UUID, partition: int) -> bool:
        """True if some member has a partition, or is still to give it up."""
        return self._owner_epochs.get(topic, {}).get(partition, NO_OWNER) != NO_OWNER

    # ---- the target assignment

    def set_target(self, member_id: str, partitions: Partitions | None) -> None:
        """None: the member has none any more."""
        before: Partitions = self.target.get(member_id, {})
        after: Partitions = {} if partitions is None else partitions
        for topic, held in before.items():
            owners = self._assigned_to.get(topic, {})
            for partition in frozenset(held).difference(after.get(topic, ())):
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self._assigned_to.pop(topic, None)
        for topic, gained in after.items():
            self._assigned_to.setdefault(topic, {}).update(dict.fromkeys(gained, member_id))
        if partitions is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = partitions

    def assigned(self, topic: UUID) -> Collection[int]:
        """The partitions of a topic that are in somebody's target assignment."""
        return self._assigned_to.get(topic, {}).keys()

    def target_of(self, member_id: str, instance_id: str | None) -> Partitions:
        """Target assignment of a member; of a static member that replaces another, that one's."""
        known = member_id if instance_id is None else self.static_members.get(instance_id, "")
        return self.target.get(known, {})

    def snapshot(self) -> ConsumerGroup:
        """Copy of the state that an assignor reads, for another thread."""
        made = copy(self)
        made.members, made.static_members = dict(self.members), dict(self.static_members)
        made.target, made.regexes = dict(self.target), dict(self.regexes)
        made._assigned_to = {topic: dict(owners) for topic, owners in self._assigned_to.items()}
        return made

    # ---- subscriptions

    def set_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """None: nobody subscribes to it any more."""
        before = self.regexes.pop(regex, None)
        for topic in before.topics if before is not None else ():
            _add(self.regex_names, topic, -1)
        if resolved is not None:
            self.regexes[regex] = resolved
            for topic in resolved.topics:
                _add(self.regex_names, topic, 1)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Names that a member subscribes to, whether they exist or not."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.names or topic in self.regex_names

    def preferred_assignor(self, before: ConsumerMember | None, after: ConsumerMember | None) -> str | None:
        """Assignor that most members ask for, with one member replaced."""
        counts: Counter[str] = Counter(m.assignor for m in self.members.values() if m.assignor is not None)
        for member, by in ((before, -1), (after, 1)):
            if member is not None and member.assignor is not None:
                _add(counts, member.assignor, by)
        order = in_map_order(counts, java_hash, grown(len(counts)))
        return max(order, key=lambda name: counts[name], default=None)

    def supports(self, protocols: Iterable[str]) -> bool:
        """True if all classic members know one of these protocols."""
        counts: Counter[str] = Counter()
        for member in self.members.values():
            if member.classic is not None:
                counts.update({name for name, _ in member.classic.protocols})
        return any(counts[name] == self.classic_members for name in protocols)

    def waits_for_partitions(self, member: ConsumerMember) -> bool:
        """True if others still have what a member is to get."""
        return any(
            partition not in member.assigned.get(topic, {}) and self.has_owner(topic, partition)
            for topic, partitions in self.target.get(member.member_id, {}).items()
            for partition in partitions
        )


def _add(counts: Counter[str], key: str, by: int) -> None:
    counts[key] += by
    if counts[key] <= 0:
        del counts[key]


def is_homogeneous(
    regexes: Mapping[str, int], names: Mapping[str, int], regex_names: Mapping[str, int], members: int
) -> bool:
    """True if all members subscribe to the same (ConsumerGroup.subscriptionType). Each mapping: how many members or
    expressions."""
    if not regexes:
        return all(names.get(topic, 0) == members for topic in {*names, *regex_names})
    first = next(iter(regexes.values()))
    return first == members and not names and all(count == 1 for count in regex_names.values())
