"""A share group and its members, as the records of __consumer_offsets say (Kafka's ShareGroup, ShareGroupMember)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Generic, Protocol
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import Record, java_hash
from kafkalog_broker.coordinator.java_order import HashOrder, K, expected_of, uuid_hash
from kafkalog_broker.share.membership import group_records as records
from kafkalog_broker.share.membership.group_records import (
    CurrentAssignment,
    MemberMetadata,
    ShareKey,
    StatePartitions,
    tombstone,
)

# The topics of the broker, as share groups look at them.


class KnownTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def id(self) -> UUID: ...
    @property
    def partitions(self) -> int: ...


class Topics(Protocol):
    """The topics that there are."""

    def get(self, name: str, /) -> KnownTopic | None: ...

    def by_id(self, topic_id: UUID, /) -> KnownTopic | None: ...


# The assignor `simple` of share groups (SimpleAssignor): each partition goes to about equally many members.
#
# With more members than partitions, partitions are shared by as many members as needed to give everybody one; with
# fewer, members have several. What a member has, it keeps as far as that allows.

NAME = "simple"

TopicPartition = tuple[UUID, int]
Assignment = dict[UUID, tuple[int, ...]]
"""Topic id to sorted partitions."""


def assign(
    subscriptions: Mapping[str, Collection[UUID]],
    partitions: Mapping[UUID, Sequence[int]],
    before: Mapping[str, Mapping[UUID, Sequence[int]]],
) -> dict[str, Assignment]:
    """subscriptions: topics of each member. partitions: those of each topic that can be given. before: what members
    had."""
    members = list(HashOrder(java_hash, subscriptions))
    topics: dict[UUID, None] = {topic: None for member in members for topic in subscriptions[member]}
    if not topics:
        return {}
    if all(len(subscriptions[member]) == len(topics) for member in members):
        targets = [(topic, index) for topic in topics for index in partitions.get(topic, ())]
        old = [
            [(topic, index) for topic, mine in before.get(member, {}).items() if topic in topics for index in mine]
            for member in members
        ]
        given = _Sharing(_topic_partition_hash, targets, range(len(members)), old).run()
        return {member: _by_topic(given[place]) for place, member in enumerate(members)}
    result: list[list[TopicPartition]] = [[] for _ in members]
    for topic in topics:
        subscribed = [place for place, member in enumerate(members) if topic in subscriptions[member]]
        held = [list(before.get(member, {}).get(topic, ())) for member in members]
        of_topic = _Sharing(_same, list(partitions.get(topic, ())), subscribed, held).run()
        for place, indexes in enumerate(of_topic):
            result[place] += [(topic, index) for index in indexes]
    return {member: _by_topic(result[place]) for place, member in enumerate(members)}


def _topic_partition_hash(key: TopicPartition) -> int:
    return 31 * uuid_hash(key[0]) + key[1]


def _same(key: int) -> int:
    return key


def _by_topic(found: Collection[TopicPartition]) -> Assignment:
    topics: dict[UUID, list[int]] = {}
    for topic, index in found:
        topics.setdefault(topic, []).append(index)
    return {topic: tuple(sorted(indexes)) for topic, indexes in topics.items()}


class _Sharing(Generic[K]):
    """targets: what is to be given. places: of the members that may have it. old: what each member of all has."""

    def __init__(
        self, hash_of: Callable[[K], int], targets: Sequence[K], places: Sequence[int], old: Sequence[Sequence[K]]
    ) -> None:
        self._hash_of = hash_of
        self._targets = targets
        self._places = places
        self._members_of: dict[K, HashOrder[int]] = {}
        self._order: HashOrder[K] = HashOrder(hash_of, expected=expected_of(len(targets)))
        self._mine: list[HashOrder[K]] = [HashOrder(hash_of, mine) for mine in old]
        for place, mine in enumerate(self._mine):
            for target in mine:
                self._members(target).add(place)
        self._sharing = -(-len(places) // len(targets)) if targets else 0
        self._wanted = [0] * len(old)
        share = self._sharing * len(targets) / len(places) if places else 0.0
        for number, place in enumerate(places):
            self._wanted[place] = ceil(share * (number + 1)) - ceil(share * number)

    def run(self) -> list[list[K]]:
        """Run the assignor; the keys of each member, in the members' order."""
        self._take_from_who_has_too_much()
        self._take_what_too_many_have()
        for target in self._targets:
            self._members(target)
        self._give()
        return [list(mine) for mine in self._mine]

    def _members(self, target: K) -> HashOrder[int]:
        if target not in self._members_of:
            self._members_of[target] = HashOrder(_same)
            self._order.add(target)
        return self._members_of[target]

    def _take_from_who_has_too_much(self) -> None:
        for place, mine in enumerate(self._mine):
            for target in list(mine)[: max(0, len(mine) - self._wanted[place])]:
                mine.discard(target)
                self._members_of[target].discard(place)

    def _take_what_too_many_have(self) -> None:
        for target in self._order:
            members = self._members_of[target]
            for place in list(members)[: max(0, len(members) - self._sharing)]:
                members.discard(place)
                self._mine[place].discard(target)

    def _give(self) -> None:
        unfilled = [place for place in self._places if len(self._mine[place]) < self._wanted[place]]
        at, gave = 0, False
        for target in self._order:
            members = self._members_of[target]
            missing = self._sharing - len(members)
            while missing > 0 and unfilled:
                if at >= len(unfilled):
                    if not gave:
                        break
                    at, gave = 0, False
                place = unfilled[at]
                at += 1
                if place in members:
                    continue
                members.add(place)
                self._mine[place].add(target)
                missing -= 1
                gave = True
                if len(self._mine[place]) >= self._wanted[place]:
                    at -= 1
                    unfilled.pop(at)


EMPTY, STABLE = "Empty", "Stable"
"""ShareGroupState: a group has members, or none."""
FIRST_EPOCH = 1
GONE_EPOCH = -1
UNKNOWN_MEMBER = CurrentAssignment(0, 0, {})
NO_METADATA = MemberMetadata(None, "", "", ())
_OF_ASSIGNMENT = frozenset({records.MEMBER, records.TARGET, records.STATE_PARTITIONS})


@dataclass(slots=True)
class Member:
    metadata: MemberMetadata = NO_METADATA
    current: CurrentAssignment = UNKNOWN_MEMBER


@dataclass(slots=True)
class ShareGroup:
    """epochs: of the group, and of its target assignment. Times in ms."""

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = FIRST_EPOCH
    assigned_at: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    state: StatePartitions | None = None
    initializing_since: dict[UUID, int] = field(default_factory=dict)
    topics_seen: tuple[tuple[str, UUID, int], ...] | None = None
    """The topics it subscribes to, when they were last looked at; None: not since it was loaded."""
    _subscribers: dict[str, int] = field(default_factory=dict, init=False)
    """By how many members each topic is subscribed to."""
    _all_assigned: bool | None = field(default=None, init=False, compare=False)
    """Cached result of `all_assigned`."""

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

    def topics(self, but: str | None = None, and_of: Iterable[str] = ()) -> Collection[str]:
        """Names of subscribed topics. but: without this member, whose subscription is `and_of`. What is returned shows
        what changes later. Counted as members come, change and go: each heartbeat asks."""
        mine = self.members[but].metadata.topics if but in self.members else ()
        if tuple(and_of) == mine:
            return self._subscribers.keys()
        left = set(mine)
        found = dict.fromkeys(name for name, count in self._subscribers.items() if count > (name in left))
        return dict.fromkeys((*found, *and_of)).keys()

    def all_assigned(self) -> bool:
        """True if all initialized share partitions of subscribed topics are assigned in the target. Computed once
        after each change, as every heartbeat asks."""
        if self._all_assigned is None:
            assigned: dict[UUID, set[int]] = {}
            for target in self.target.values():
                for topic, indexes in target.items():
                    assigned.setdefault(topic, set()).update(indexes)
            initialized = {} if self.state is None else self.state.initialized
            self._all_assigned = all(
                info.name not in self._subscribers or assigned.get(topic) == set(info.partitions)
                for topic, info in initialized.items()
            )
        return self._all_assigned

    def replay(self, key: ShareKey, value: bytes | None, now_ms: int) -> None:
        """Take over a record. Raises CorruptLog, UnsupportedFormat."""
        if key.kind in _OF_ASSIGNMENT:
            self._all_assigned = None
        match key.kind:
            case records.MEMBER if value is None:
                gone = self.members.pop(key.member_id, None)
                self._count((), NO_METADATA if gone is None else gone.metadata)
            case records.MEMBER:
                metadata = records.decode_member(value or b"")
                member = self._member(key)
                self._count(metadata.topics, member.metadata)
                member.metadata = metadata
            case records.GROUP if value is not None:
                self.epoch, self.metadata_hash = records.decode_group(value)
            case records.TARGET_EPOCH:
                self.assignment_epoch, self.assigned_at = (
                    (GONE_EPOCH, 0) if value is None else records.decode_target_epoch(value)
                )
            case records.TARGET if value is None:
                self.target.pop(key.member_id, None)
            case records.TARGET:
                self.target[key.member_id] = records.decode_target(value or b"")
            case records.CURRENT if value is None:
                if key.member_id in self.members:
                    self.members[key.member_id].current = UNKNOWN_MEMBER
            case records.CURRENT:
                self._member(key).current = records.decode_current(value or b"")
            case records.STATE_PARTITIONS:
                self.state = None if value is None else records.decode_state_partitions(value)
                initializing = () if self.state is None else self.state.initializing
                self.initializing_since = dict.fromkeys(initializing, now_ms)

    def _count(self, topics: Iterable[str], before: MemberMetadata) -> None:
        """A member subscribes to these instead."""
        for name in set(topics):
            self._subscribers[name] = self._subscribers.get(name, 0) + 1
        for name in set(before.topics):
            self._subscribers[name] -= 1
            if not self._subscribers[name]:
                del self._subscribers[name]

    def _member(self, key: ShareKey) -> Member:
        return self.members.setdefault(key.member_id, Member())

    def tombstones(self) -> list[Record]:
        """Tombstones of all records of the group."""
        group = self.group_id
        return [
            *(tombstone(records.CURRENT, group, member) for member in self.members),
            *(tombstone(records.TARGET, group, member) for member in self.members),
            tombstone(records.TARGET_EPOCH, group),
            *(tombstone(records.MEMBER, group, member) for member in self.members),
            tombstone(records.STATE_PARTITIONS, group),
            tombstone(records.GROUP, group),
        ]
