"""The assignor `uniform` for members with different subscriptions (Kafka's UniformHeterogeneousAssignmentBuilder).

Members keep the partitions of topics that they still subscribe to. Each unassigned partition goes to the subscriber
with the fewest partitions. Then partitions move from the members with most to those with fewest, topic by topic, until
no move makes the assignment more even.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kafkalog_broker.groups.assignors.group_spec import Assignments, GroupSpec

_MAX_ROUNDS = 16  # Kafka's bound: with overlapping subscriptions, each round about halves the imbalance
_NO_OWNER = -1


def assign_heterogeneous(group: GroupSpec) -> Assignments:
    """Assign the partitions of each topic to its subscribers, as evenly as the subscriptions allow."""
    return _HeterogeneousBuilder(group).build()


class Balancer:
    """Selects the subscriber of a topic that gets the next partition, and the subscriber that gives it away.

    Members are sorted by size, which is their number of partitions. The members in [0, low_end) get partitions until
    all of them have the same size, then the range is extended. In the same way, the members in [high_start, high_end)
    give partitions away.
    """

    def __init__(self, members: Sequence[int], sizes: list[int]) -> None:
        """Create for the subscribers of one topic.

        Args:
            members: The subscribers.
            sizes: Size of each member. Updated by the caller when it moves a partition.
        """
        self._sizes = sizes
        self._members = sorted(members, key=lambda member: (sizes[member], member))
        self._low_end = 0
        self._low_level = sizes[self._members[0]] - 1
        self._next_low = 0
        self._high_start = self._high_end = len(self._members)
        self._high_level = sizes[self._members[-1]] + 1
        self._next_high = len(self._members) - 1
        self.imbalance = sizes[self._members[-1]] - sizes[self._members[0]]
        """Initial difference between the largest and the smallest size."""

    def least_loaded(self) -> int:
        """Return the member that gets the next partition."""
        if self._next_low >= self._low_end:
            self._low_level += 1
            while self._low_end < len(self._members) and self._size_at(self._low_end) == self._low_level:
                self._low_end += 1
            self._next_low = 0
        self._next_low += 1
        return self._members[self._next_low - 1]

    def most_loaded(self) -> int | None:
        """Return the member that gives away the next partition, or None if all members are excluded."""
        if self._next_high < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                # All members of the range are excluded: continue with the next smaller size.
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
        """Exclude the member that `most_loaded` returned last, because it has no partition of the topic."""
        self._high_end -= 1
        excluded = self._next_high + 1
        last = self._high_end
        self._members[excluded], self._members[last] = self._members[last], self._members[excluded]

    @property
    def is_balanced(self) -> bool:
        return self._high_level - self._low_level <= 1

    def _size_at(self, position: int) -> int:
        return self._sizes[self._members[position]]


class _HeterogeneousBuilder:
    """Builds the assignment. Members are numbers, in their order in the group."""

    def __init__(self, group: GroupSpec) -> None:
        self._ids = list(group.members)
        self._sizes = [0] * len(self._ids)
        self._subscribers: dict[UUID, list[int]] = {}
        for number, member in enumerate(group.members.values()):
            for topic in member.topics:
                self._subscribers.setdefault(topic, []).append(number)
        self._owners = {topic: [_NO_OWNER] * len(group.partitions_of(topic)) for topic in self._subscribers}
        self._assigned: list[dict[UUID, dict[int, None]]] = []
        for number, member in enumerate(group.members.values()):
            subscribed = frozenset(member.topics)
            assigned = {topic: parts for topic, parts in member.partitions.items() if topic in subscribed}
            self._assigned.append({topic: dict.fromkeys(parts) for topic, parts in assigned.items()})
            for topic, partitions in assigned.items():
                self._sizes[number] += len(partitions)
                for partition in partitions:
                    self._owners[topic][partition] = number

    def build(self) -> Assignments:
        def sort_key(topic: UUID) -> tuple[float, int, UUID]:
            """Sort topics with most partitions per subscriber first."""
            subscribers = len(self._subscribers[topic])
            return -len(self._owners[topic]) / subscribers, subscribers, topic

        topics = sorted(self._subscribers, key=sort_key)
        for topic in topics:
            unassigned = [partition for partition, owner in enumerate(self._owners[topic]) if owner == _NO_OWNER]
            if unassigned:
                balancer = Balancer(self._subscribers[topic], self._sizes)
                for partition in unassigned:
                    self._move(topic, partition, balancer.least_loaded())
        self._balance([topic for topic in topics if len(self._subscribers[topic]) > 1])
        return {
            member: {topic: tuple(partitions) for topic, partitions in assigned.items()}
            for member, assigned in zip(self._ids, self._assigned, strict=True)
        }

    def _balance(self, topics: list[UUID]) -> None:
        last_moved: int | None = None
        for _ in range(_MAX_ROUNDS):
            for position, topic in enumerate(topics):
                if position == last_moved:
                    return  # no topic has changed since
                moved = self._balance_topic(topic)
                if moved or last_moved is None:
                    last_moved = position

    def _balance_topic(self, topic: UUID) -> int:
        """Move partitions of a topic from members with most to members with fewest, and return the number of moves."""
        balancer = Balancer(self._subscribers[topic], self._sizes)
        if balancer.imbalance <= 1:
            return 0
        owners = self._owners[topic]
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        moved = 0
        while not balancer.is_balanced:
            giver = balancer.most_loaded()
            while giver is not None and not owned.get(giver):
                balancer.exclude_most_loaded()
                giver = balancer.most_loaded()
            if giver is None:
                break
            partition = owned[giver].pop()
            taker = balancer.least_loaded()
            if balancer.is_balanced:
                break
            self._move(topic, partition, taker)
            moved += 1
        return moved

    def _move(self, topic: UUID, partition: int, member: int) -> None:
        before = self._owners[topic][partition]
        if before != _NO_OWNER:
            partitions = self._assigned[before][topic]
            del partitions[partition]
            if not partitions:
                del self._assigned[before][topic]
            self._sizes[before] -= 1
        self._assigned[member].setdefault(topic, {})[partition] = None
        self._owners[topic][partition] = member
        self._sizes[member] += 1
