"""The assignor `uniform` where members subscribe to different topics (Kafka's UniformHeterogeneousAssignmentBuilder).

Everybody keeps what it subscribes to; what is free goes to the subscriber that has least; then partitions move from who
has most to who has least, topic by topic, until that brings nothing any more.
"""

from __future__ import annotations

from uuid import UUID

from kafkalog_broker.coordinators.java_order import uuid_order
from kafkalog_broker.groups.modern.assignor_input import Assignments, GroupSpec
from kafkalog_broker.groups.modern.balancer import Balancer

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


def assign(group: GroupSpec) -> Assignments:
    return _Builder(group).build()
