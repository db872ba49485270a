"""The assignor `simple` of share groups (SimpleAssignor): each partition goes to about equally many members.

With more members than partitions, partitions are shared by as many members as needed to give everybody one; with fewer,
members have several. What a member has, it keeps as far as that allows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil
from typing import Generic
from uuid import UUID

from kafkalog_broker.coordinators.java_order import HashOrder, K, expected_of, uuid_hash
from kafkalog_broker.coordinators.partition_for import java_hash

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
        """What each member has now."""
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
