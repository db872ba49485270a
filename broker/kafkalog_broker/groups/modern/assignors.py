"""The server-side assignors: `uniform` and `range` of consumer groups (group.consumer.assignors), `simple` of share
groups.

Each gives out partitions in the order of member ids and topic names: the same group gets the same assignment again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple, TypeVar
from uuid import UUID

from kafkalog_broker.groups.modern.group_records import Partitions


class AssignedMember(NamedTuple):
    """A member as an assignor sees it. topics: subscribed ones that exist. partitions: its target assignment so far."""

    topics: Collection[UUID]
    partitions: Partitions
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """members: by id, in order of assignment. homogeneous: all subscribe to the same. partitions: assignable ones."""

    members: Mapping[str, AssignedMember]
    homogeneous: bool
    partitions: Callable[[UUID], Sequence[int]]


Assignments = Mapping[str, Partitions]  # by member id; who is not in it gets nothing
TopicPartition = tuple[UUID, int]
T = TypeVar("T", bound=Hashable)


# ---- `range`: of each topic, every member gets a range of partitions (Kafka's RangeAssignor).
#
# Members in the same order get the ranges of all topics, so topics with the same number of partitions and the same
# subscribers are divided alike.


@dataclass(slots=True)
class _Topic:
    """Partitions of a topic that are left to be assigned."""

    partitions: int
    members: int = 0
    next: int = 0
    extra: int = -1  # how many members still get one more than the others; -1: nobody has got any

    def take(self) -> range:
        if self.extra < 0:
            self.extra = self.partitions % self.members
        quota = self.partitions // self.members
        if self.extra > 0:
            quota += 1
            self.extra -= 1
        start, self.next = self.next, min(self.next + quota, self.partitions)
        return range(start, self.next)


def assign_ranges(group: GroupSpec) -> Assignments:
    """Static members first, by instance id, then the others by member id."""
    order = sorted(
        group.members,
        key=lambda member: (
            (0, group.members[member].instance_id or "") if group.members[member].instance_id else (1, member)
        ),
    )
    topics: dict[UUID, _Topic] = {}
    for member in order:
        for topic in group.members[member].topics:
            if topic not in topics:
                topics[topic] = _Topic(len(group.partitions(topic)))
            topics[topic].members += 1
    assigned: dict[str, Partitions] = {}
    for member in order:
        taken = {topic: topics[topic].take() for topic in group.members[member].topics}
        assigned[member] = {topic: tuple(indexes) for topic, indexes in taken.items() if indexes}
    return assigned


# ---- `uniform` where all members subscribe to the same topics (Kafka's UniformHomogeneousAssignmentBuilder).
#
# Every member gets as many partitions as any other, or one more, and keeps what it has as far as that goes.


def _assign_homogeneous(group: GroupSpec) -> Assignments:
    topics = {topic: group.partitions(topic) for topic in next(iter(group.members.values())).topics}
    if not topics:
        return {}
    held: dict[UUID, set[int]] = {topic: set() for topic in topics}
    for member in group.members.values():
        for topic, partitions in member.partitions.items():
            if topic in held:
                held[topic].update(partitions)
    free = [
        (topic, index) for topic, indexes in topics.items() if len(held[topic]) < len(indexes) for index in indexes
        if index not in held[topic]
    ]  # fmt: skip
    kept: dict[str, Partitions] = {}
    unfilled: list[tuple[str, int]] = []
    least, extras = divmod(sum(map(len, topics.values())), len(group.members))
    for number, (member_id, member) in enumerate(group.members.items()):
        takes_extra = extras > 0
        kept[member_id], quota = _kept(member, topics, least + takes_extra, free)
        if quota > 0 and takes_extra and len(group.members) - number > extras:
            # Others may have the extra partition already; the last ones take it whatever they have.
            quota -= 1
            takes_extra = False
        if quota > 0:
            unfilled.append((member_id, quota))
        extras -= takes_extra
    start = 0
    for member_id, quota in unfilled:
        kept[member_id] = _with(kept[member_id], free[start : start + quota])
        start += quota
    if start < len(free):
        raise AssertionError(f"{len(free) - start} partitions were left unassigned")
    return kept


def _kept(
    member: AssignedMember, topics: Collection[UUID], quota: int, free: list[TopicPartition]
) -> tuple[Partitions, int]:
    """Partitions that a member keeps within its quota, the object itself where it keeps all, and the rest of the quota.
    Those taken away go to the end of `free`."""
    held = sum(map(len, member.partitions.values()))
    if held <= quota and all(topic in topics for topic in member.partitions):
        return member.partitions, quota - held
    kept: dict[UUID, tuple[int, ...]] = {}
    for topic, partitions in member.partitions.items():
        if topic not in topics:
            continue
        ordered = sorted(partitions)
        if quota:
            kept[topic] = tuple(ordered[:quota])
        free += [(topic, partition) for partition in ordered[quota:]]
        quota -= min(quota, len(ordered))
    return kept, quota


def _with(kept: Partitions, gained: Iterable[TopicPartition]) -> Partitions:
    topics = {topic: list(partitions) for topic, partitions in kept.items()}
    for topic, partition in gained:
        topics.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in topics.items()}


# ---- `uniform` where members subscribe to different topics (Kafka's UniformHeterogeneousAssignmentBuilder).
#
# Everybody keeps what it subscribes to; what is free goes to the subscriber that has least; then partitions move
# from who has most to who has least, topic by topic, until that brings nothing any more.

_ROUNDS = 16  # Kafka's bound: where subscriptions overlap, each round about halves what is unequal
_NOBODY = -1


class Balancer:
    """Gives the members that have least, and takes from those that have most, of one topic's subscribers.

    sizes: partitions of each member, shared with who moves them. Two ranges of `members`, sorted by size: [0, low_end)
    is filled level by level, [high_start, high_end) is lowered level by level.
    """

    def __init__(self, members: Sequence[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._members = sorted(members, key=lambda member: (sizes[member], member))
        self._low_end = 0
        self._low_level = sizes[self._members[0]] - 1
        self._next_low = 0
        self._high_start = self._high_end = len(self._members)
        self._high_level = sizes[self._members[-1]] + 1
        self._next_high = len(self._members) - 1
        self.imbalance = sizes[self._members[-1]] - sizes[self._members[0]]
        """Difference between the fullest and the emptiest member at the beginning."""

    def least_loaded(self) -> int:
        """Who gets the next partition."""
        if self._next_low >= self._low_end:
            self._low_level += 1
            while self._low_end < len(self._members) and self._size_at(self._low_end) == self._low_level:
                self._low_end += 1
            self._next_low = 0
        self._next_low += 1
        return self._members[self._next_low - 1]

    def most_loaded(self) -> int | None:
        """Who gives the next partition; None when nobody is left who could."""
        if self._next_high < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                # All of the range were excluded: go on with who comes next.
                self._high_level = self._size_at(self._high_start - 1)
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._size_at(self._high_start - 1) == self._high_level:
                self._high_start -= 1
            self._next_high = self._high_end - 1
        if self._next_high < 0:
            return None
        self._next_high -= 1
        return self._members[self._next_high + 1]

    def exclude_most_loaded(self) -> None:
        """Who `most_loaded` gave last has nothing of this topic."""
        self._high_end -= 1
        at, last = self._next_high + 1, self._high_end
        self._members[at], self._members[last] = self._members[last], self._members[at]

    @property
    def is_balanced(self) -> bool:
        return self._high_level - self._low_level <= 1

    def _size_at(self, position: int) -> int:
        return self._sizes[self._members[position]]


class _HeterogeneousBuilder:
    """Members are numbers, in the order of the group."""

    def __init__(self, group: GroupSpec) -> None:
        self._ids = list(group.members)
        self._sizes = [0] * len(self._ids)
        self._subscribers: dict[UUID, list[int]] = {}
        for number, member in enumerate(group.members.values()):
            for topic in member.topics:
                self._subscribers.setdefault(topic, []).append(number)
        self._owners = {topic: [_NOBODY] * len(group.partitions(topic)) for topic in self._subscribers}
        self._kept: list[dict[UUID, dict[int, None]]] = []
        for number, member in enumerate(group.members.values()):
            subscribed = frozenset(member.topics)
            kept = {topic: parts for topic, parts in member.partitions.items() if topic in subscribed}
            self._kept.append({topic: dict.fromkeys(parts) for topic, parts in kept.items()})
            for topic, partitions in kept.items():
                self._sizes[number] += len(partitions)
                for partition in partitions:
                    self._owners[topic][partition] = number

    def build(self) -> Assignments:
        def most_for_each_subscriber(topic: UUID) -> tuple[float, int, UUID]:
            subscribers = len(self._subscribers[topic])
            return -len(self._owners[topic]) / subscribers, subscribers, topic

        topics = sorted(self._subscribers, key=most_for_each_subscriber)
        for topic in topics:
            free = [partition for partition, owner in enumerate(self._owners[topic]) if owner == _NOBODY]
            if free:
                balancer = Balancer(self._subscribers[topic], self._sizes)
                for partition in free:
                    self._move(topic, partition, balancer.least_loaded())
        self._balance([topic for topic in topics if len(self._subscribers[topic]) > 1])
        return {
            member: {topic: tuple(partitions) for topic, partitions in kept.items()}
            for member, kept in zip(self._ids, self._kept, strict=True)
        }

    def _balance(self, topics: list[UUID]) -> None:
        last_moved: int | None = None
        for _ in range(_ROUNDS):
            for position, topic in enumerate(topics):
                if position == last_moved:
                    return  # once around without a move
                moved = self._balance_topic(topic)
                if moved or last_moved is None:
                    last_moved = position

    def _balance_topic(self, topic: UUID) -> int:
        """Move its partitions from who has most to who has least; how many were moved."""
        balancer = Balancer(self._subscribers[topic], self._sizes)
        if balancer.imbalance <= 1:
            return 0
        owners = self._owners[topic]
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            held.setdefault(owner, []).append(partition)
        moved = 0
        while not balancer.is_balanced:
            giver = balancer.most_loaded()
            while giver is not None and not held.get(giver):
                balancer.exclude_most_loaded()
                giver = balancer.most_loaded()
            if giver is None:
                break
            partition = held[giver].pop()
            taker = balancer.least_loaded()
            if balancer.is_balanced:
                break
            self._move(topic, partition, taker)
            moved += 1
        return moved

    def _move(self, topic: UUID, partition: int, member: int) -> None:
        before = self._owners[topic][partition]
        if before != _NOBODY:
            partitions = self._kept[before][topic]
            del partitions[partition]
            if not partitions:
                del self._kept[before][topic]
            self._sizes[before] -= 1
        self._kept[member].setdefault(topic, {})[partition] = None
        self._owners[topic][partition] = member
        self._sizes[member] += 1


# ---- `simple` of share groups (SimpleAssignor): each partition goes to about equally many members.
#
# With more members than partitions, partitions are shared by as many members as needed to give everybody one; with
# fewer, members have several. What a member has, it keeps as far as that allows.


def assign_simple(group: GroupSpec) -> Assignments:
    if group.homogeneous:
        topics = next(iter(group.members.values())).topics
        targets = [(topic, index) for topic in topics for index in group.partitions(topic)]
        held = {
            member_id: [(topic, index) for topic, indexes in member.partitions.items() for index in indexes]
            for member_id, member in group.members.items()
        }
        return {member_id: _with({}, shared) for member_id, shared in _share_out(targets, held).items()}
    held_of_topics: dict[UUID, dict[str, Collection[int]]] = {}
    for member_id, member in group.members.items():
        for topic in member.topics:
            held_of_topics.setdefault(topic, {})[member_id] = member.partitions.get(topic, ())
    assigned: dict[str, dict[UUID, tuple[int, ...]]] = {member_id: {} for member_id in group.members}
    for topic, held_of_topic in held_of_topics.items():
        for member_id, indexes in _share_out(group.partitions(topic), held_of_topic).items():
            if indexes:
                assigned[member_id][topic] = tuple(sorted(indexes))
    return assigned


def _share_out(targets: Sequence[T], held: Mapping[str, Collection[T]]) -> dict[str, list[T]]:
    """Targets of each member in `held`, which maps members to what they had."""
    sharing = ceil(len(held) / len(targets)) if targets else 0
    owners: dict[T, set[str]] = {target: set() for target in targets}
    shared: dict[str, list[T]] = {}
    missing: dict[str, int] = {}
    share = sharing * len(targets) / len(held)
    for number, (member, before) in enumerate(held.items()):
        quota = ceil(share * (number + 1)) - ceil(share * number)
        shared[member] = []
        for target in before:
            if len(shared[member]) < quota and target in owners and len(owners[target]) < sharing:
                shared[member].append(target)
                owners[target].add(member)
        missing[member] = quota - len(shared[member])
    waiting = deque(member for member, count in missing.items() if count)
    for target in targets:
        for _ in range(len(waiting)):
            if len(owners[target]) >= sharing:
                break
            member = waiting.popleft()
            if member not in owners[target]:
                owners[target].add(member)
                shared[member].append(target)
                missing[member] -= 1
            if missing[member]:
                waiting.append(member)
    return shared


ASSIGNORS: Mapping[str, Callable[[GroupSpec], Assignments]] = {
    "uniform": lambda group: _assign_homogeneous(group) if group.homogeneous else _HeterogeneousBuilder(group).build(),
    "range": assign_ranges,
    "simple": assign_simple,
}
