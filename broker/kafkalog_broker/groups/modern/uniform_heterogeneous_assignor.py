"""The assignor `uniform` for members with different subscriptions (Kafka's UniformHeterogeneousAssignmentBuilder).

Members keep the partitions of topics that they still subscribe to. Each unassigned partition goes to the subscriber
with the fewest partitions. Then partitions move from the members with most to those with fewest, topic by topic, until
no move makes the assignment more even.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kafkalog_broker.groups.modern.group_spec import Assignments, GroupSpec

_ROUNDS = 16  # Kafka's bound: where subscriptions overlap, each round about halves what is unequal
_NOBODY = -1


def assign_heterogeneous(group: GroupSpec) -> Assignments:
    return _HeterogeneousBuilder(group).build()


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
