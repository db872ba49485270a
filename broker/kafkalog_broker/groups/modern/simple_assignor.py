"""The assignor `simple` of share groups: every partition is assigned to about equally many members (SimpleAssignor).

With more members than partitions, each partition has as many members as needed to give every member one. With fewer,
members have several partitions. Members keep the partitions that they have as far as that allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from math import ceil
from typing import TypeVar
from uuid import UUID

from kafkalog_broker.groups.modern.group_spec import Assignments, GroupSpec, with_partitions

T = TypeVar("T", bound=Hashable)


def assign_simple(group: GroupSpec) -> Assignments:
    if group.homogeneous:
        topics = next(iter(group.members.values())).topics
        targets = [(topic, index) for topic in topics for index in group.partitions(topic)]
        held = {
            member_id: [(topic, index) for topic, indexes in member.partitions.items() for index in indexes]
            for member_id, member in group.members.items()
        }
        return {member_id: with_partitions({}, shared) for member_id, shared in _share_out(targets, held).items()}
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
