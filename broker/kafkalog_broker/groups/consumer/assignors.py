"""The assignors that members may ask for by name (group.consumer.assignors)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import java_hash
from kafkalog_broker.coordinator.java_order import (
    TopicMap,
    copied,
    grown,
    in_map_order,
    set_of_partitions,
    texts_in_timeline_order,
    uuid_hash,
    uuid_order,
)
from kafkalog_broker.groups.consumer.changes import Kind, TargetEpochValue
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember, Partitions
from kafkalog_broker.groups.consumer.draft import Draft
from kafkalog_broker.groups.consumer.topics_view import TopicsView

# What an assignor is asked, and what all of them know (GroupSpec, SubscribedTopicDescriber).


class AssignedMember(NamedTuple):
    """A member as an assignor sees it. topics: subscribed ones that exist. partitions: its target assignment so far."""

    topics: Collection[UUID]
    partitions: Partitions
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """members: by id, in the order in which partitions are given out. homogeneous: all subscribe to the same.
    partition_count: of a topic. assigned: those of its partitions that are in somebody's target
    assignment."""

    members: Mapping[str, AssignedMember]
    homogeneous: bool
    partition_count: Callable[[UUID], int]
    assigned: Callable[[UUID], Collection[int]]


Assignments = dict[str, Partitions]
"""By member id; who is not in it gets nothing."""


# Members by the number of their partitions, from both ends (UniformHeterogeneousAssignmentBuilder's balancer).


class Balancer:
    """Hands out the members that have least, and takes from those that have most, of one topic's subscribers.

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

    def _size_at(self, place: int) -> int:
        return self._sizes[self._members[place]]


# The assignor `range`: of each topic, every member gets a range of partitions (Kafka's RangeAssignor).
#
# Members in the same order get the ranges of all topics, so topics with the same number of partitions and the same
# subscribers are divided alike.

NAME = "range"


@dataclass(slots=True)
class _Topic:
    """Partitions of a topic that are left to be assigned."""

    partitions: int
    members: int = 0
    next: int = 0
    extra: int = -1
    """How many members still get one more than the others; -1: nobody has got any."""

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
                topics[topic] = _Topic(group.partition_count(topic))
            topics[topic].members += 1
    assigned: Assignments = {}
    for member in order:
        taken = {topic: topics[topic].take() for topic in group.members[member].topics}
        assigned[member] = {topic: tuple(part) for topic, part in taken.items() if part}
    return assigned


# The assignor `uniform` where members subscribe to different topics (Kafka's UniformHeterogeneousAssignmentBuilder).
#
# Everybody keeps what it subscribes to; what is free goes to the subscriber that has least; then partitions move
# from who has most to who has least, topic by topic, until that brings nothing any more.

_ROUNDS = 16
"""Kafka's bound: where subscriptions overlap, each round about halves what is unequal."""
_NOBODY = -1


class _Builder:
    """Members are numbers, in the order of the group."""

    def __init__(self, group: GroupSpec) -> None:
        self._ids = list(group.members)
        self._sizes = [0] * len(self._ids)
        self._subscribers: dict[UUID, list[int]] = {}
        for number, member in enumerate(group.members.values()):
            for topic in member.topics:
                self._subscribers.setdefault(topic, []).append(number)
        self._owners = {topic: [_NOBODY] * group.partition_count(topic) for topic in self._subscribers}
        self._kept: list[dict[UUID, dict[int, None]]] = []
        for number, member in enumerate(group.members.values()):
            subscribed = frozenset(member.topics)
            kept = {topic: parts for topic, parts in member.partitions.items() if topic in subscribed}
            self._kept.append({topic: dict.fromkeys(parts) for topic, parts in kept.items()})
            for topic, partitions in kept.items():
                self._sizes[number] += len(partitions)
                for partition in partitions:
                    self._owners[topic][partition] = number

    def _by_load(self) -> list[UUID]:
        """Topics with most partitions for each subscriber first."""

        def key(topic: UUID) -> tuple[float, int, tuple[int, int]]:
            subscribers = len(self._subscribers[topic])
            return -len(self._owners[topic]) / subscribers, subscribers, uuid_order(topic)

        return sorted(self._subscribers, key=key)

    def build(self) -> Assignments:
        topics = self._by_load()
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
            for place, topic in enumerate(topics):
                if place == last_moved:
                    return  # once around without a move
                moved = self._balance_topic(topic)
                if moved or last_moved is None:
                    last_moved = place

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


def assign_heterogeneous(group: GroupSpec) -> Assignments:
    return _Builder(group).build()


# The assignor `uniform` where all members subscribe to the same topics (Kafka's
# UniformHomogeneousAssignmentBuilder).
#
# Every member gets as many partitions as any other, or one more, and keeps what it has as far as that goes.

TopicPartition = tuple[UUID, int]
Kept = Mapping[UUID, Sequence[int]]
"""Partitions that a member keeps: its `partitions` object itself where it keeps all of them."""


def assign_homogeneous(group: GroupSpec) -> Assignments:
    first = next(iter(group.members.values()))
    topics = in_map_order(first.topics, uuid_hash, copied(len(first.topics)))
    if not topics:
        return {}
    free: list[TopicPartition] = []
    total = 0
    for topic in topics:
        count, assigned = group.partition_count(topic), group.assigned(topic)
        if len(assigned) < count:
            free += [(topic, partition) for partition in range(count) if partition not in assigned]
        total += count
    kept, unfilled = _keep(group, set(topics), total, free)
    gained: dict[str, dict[UUID, list[int]]] = {}
    at = 0
    for member_id, quota in unfilled:
        gets = gained.setdefault(member_id, {})
        for topic, partition in free[at : at + quota]:
            gets.setdefault(topic, []).append(partition)
        at += quota
    if at < len(free):
        raise AssertionError(f"{len(free) - at} partitions were left unassigned")
    return {
        member_id: _together(member, kept[member_id], gained.get(member_id, {}))
        for member_id, member in group.members.items()
    }


def _together(member: AssignedMember, kept: Kept, gained: dict[UUID, list[int]]) -> Partitions:
    """Assignment of a member, in the order of Java's maps, which began as copies of its assignment before."""
    if kept is member.partitions and not gained:
        return member.partitions
    order = TopicMap(len(member.partitions))
    held = _in_order(member.partitions)
    for topic in held:
        order.put(topic)
    for topic in held:
        if topic not in kept:
            order.remove(topic)
    for topic in gained:
        order.compute_if_absent(topic)
    return {
        topic: _as_set([*kept.get(topic, ()), *gained.get(topic, ())], member.partitions.get(topic, ()))
        for topic in order.in_order()
    }


def _in_order(partitions: Partitions) -> list[UUID]:
    """The topics of a target assignment as it is read from its record."""
    return in_map_order(partitions, uuid_hash, grown(len(partitions)))


def _as_set(partitions: list[int], before: tuple[int, ...]) -> tuple[int, ...]:
    """In the order of Java's set, which began as a copy of what there was before."""
    return tuple(set_of_partitions(partitions, grown(len(partitions), copied(len(before)))))


def _keep(
    group: GroupSpec, topics: set[UUID], total: int, free: list[TopicPartition]
) -> tuple[dict[str, Kept], list[tuple[str, int]]]:
    """Partitions that each member keeps, and how many more it may have. Those taken away go to the end of `free`."""
    members = len(group.members)
    least, extras = divmod(total, members)
    kept: dict[str, Kept] = {}
    unfilled: list[tuple[str, int]] = []
    for number, (member_id, member) in enumerate(group.members.items()):
        takes_extra = extras > 0
        kept[member_id], quota = _kept_by(member, topics, least + takes_extra, free)
        if quota > 0 and takes_extra and members - number > extras:
            # Others may have the extra partition already; the last ones take it whatever they have.
            quota -= 1
            takes_extra = False
        if quota > 0:
            unfilled.append((member_id, quota))
        extras -= takes_extra
    return kept, unfilled


def _kept_by(member: AssignedMember, topics: set[UUID], quota: int, free: list[TopicPartition]) -> tuple[Kept, int]:
    """Partitions that a member keeps within its quota, and the rest of the quota."""
    held = sum(map(len, member.partitions.values()))
    if held <= quota and member.partitions.keys() <= topics:
        return member.partitions, quota - held
    kept: dict[UUID, list[int]] = {}
    for topic in _in_order(member.partitions):
        if topic not in topics:
            continue
        partitions = member.partitions[topic]
        if len(partitions) <= quota:
            kept[topic] = list(partitions)
            quota -= len(partitions)
            continue
        ordered = set_of_partitions(partitions)
        if quota:
            kept[topic] = ordered[:quota]
        free += [(topic, partition) for partition in ordered[quota:]]
        quota = 0
    return kept, quota


def _uniform(group: GroupSpec) -> Assignments:
    return assign_homogeneous(group) if group.homogeneous else assign_heterogeneous(group)


ASSIGNORS: Mapping[str, Callable[[GroupSpec], Assignments]] = {
    "uniform": _uniform,
    "range": assign_ranges,
}


# The target assignment of a group, made anew by an assignor (Kafka's TargetAssignmentBuilder).


def may_assign(group: ConsumerGroup, interval_ms: int, now_ms: int) -> bool:
    """True if the interval between two assignments is over (KIP-1263)."""
    made_at = group.assignment_timestamp_ms
    return not made_at or not interval_ms or now_ms >= made_at + interval_ms


def assign_target(
    draft: Draft, group: ConsumerGroup, epoch: int, updated: ConsumerMember, assignor: str, *, homogeneous: bool,
    topics: TopicsView, now_ms: int,
) -> Partitions:  # fmt: skip
    """Changes that make it the target of `epoch`; what `updated`, which replaces or joins its group's members, is to
    have."""
    members = _members(group, updated, topics)
    found = ASSIGNORS[assignor](GroupSpec(members, homogeneous, _counts(topics), group.assigned))
    for member_id in members:
        partitions = found.get(member_id, {})
        before = group.target.get(member_id)
        if before is None or not _equal(before, partitions):
            draft.change(Kind.TARGET, member_id, partitions)
    draft.change(Kind.TARGET_EPOCH, "", TargetEpochValue(epoch, now_ms))
    return found.get(updated.member_id, {})


def _counts(topics: TopicsView) -> Callable[[UUID], int]:
    def count(topic_id: UUID) -> int:
        topic = topics.by_id(topic_id)
        return 0 if topic is None else topic.partitions

    return count


def _members(group: ConsumerGroup, updated: ConsumerMember, topics: TopicsView) -> dict[str, AssignedMember]:
    """All members with `updated` in its place, in the order in which Kafka goes through them."""
    replaced = None if updated.instance_id is None else group.static_members.get(updated.instance_id)
    found = {
        member_id: group.members[member_id] for member_id in texts_in_timeline_order(group.members, group.peak_members)
    }
    found[updated.member_id] = updated
    if replaced is not None and replaced != updated.member_id:
        found.pop(replaced, None)
    ids: dict[frozenset[str], list[UUID]] = {}
    order = in_map_order(found, java_hash, grown(len(found)))
    members = {}
    for member_id in order:
        member = found[member_id]
        names = group.topics_of(member)
        if names not in ids:
            ordered = in_map_order(sorted(names), java_hash, copied(len(names)))
            ids[names] = [topic.topic_id for topic in map(topics.by_name, ordered) if topic is not None]
        held = group.target.get(member_id, {})
        if member_id == updated.member_id and replaced is not None and replaced != member_id:
            held = group.target.get(replaced, {})
        members[member_id] = AssignedMember(ids[names], held, member.instance_id)
    return members


def _equal(one: Partitions, other: Partitions) -> bool:
    return one is other or (one.keys() == other.keys() and all(_same(one[topic], other[topic]) for topic in one))


def _same(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and frozenset(one).issuperset(other)
