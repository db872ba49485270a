"""The assignor `simple` of share groups, which assigns each partition to about equally many members (SimpleAssignor).

With more members than partitions, each partition has as many members as needed to give every member a partition. With
fewer members, members have several partitions. Within these quotas, members keep the partitions that they have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from math import ceil
from typing import TypeVar
from uuid import UUID

from kafkalog_broker.groups.assignors.group_spec import Assignments, GroupSpec, with_partitions

T = TypeVar("T", bound=Hashable)


def assign_simple(group: GroupSpec) -> Assignments:
    """Assign all partitions at once if all members have the same subscription, otherwise topic by topic."""
    if group.is_homogeneous:
        topic_ids = next(iter(group.members.values())).topics
        partitions = [(topic_id, index) for topic_id in topic_ids for index in group.partitions_of(topic_id)]
        current = {
            member_id: [(topic_id, index) for topic_id, indexes in member.partitions.items() for index in indexes]
            for member_id, member in group.members.items()
        }
        assigned = _distribute(partitions, current)
        return {member_id: with_partitions({}, gained) for member_id, gained in assigned.items()}
    current_by_topic: dict[UUID, dict[str, Collection[int]]] = {}
    for member_id, member in group.members.items():
        for topic_id in member.topics:
            current_by_topic.setdefault(topic_id, {})[member_id] = member.partitions.get(topic_id, ())
    assignments: dict[str, dict[UUID, tuple[int, ...]]] = {member_id: {} for member_id in group.members}
    for topic_id, current_of_topic in current_by_topic.items():
        for member_id, indexes in _distribute(group.partitions_of(topic_id), current_of_topic).items():
            if indexes:
                assignments[member_id][topic_id] = tuple(sorted(indexes))
    return assignments


def _distribute(partitions: Sequence[T], current: Mapping[str, Collection[T]]) -> dict[str, list[T]]:
    """Return the partitions of each member.

    Args:
        current: Partitions that each member has now. It keeps them within its quota.
    """
    members_per_partition = ceil(len(current) / len(partitions)) if partitions else 0
    partitions_per_member = members_per_partition * len(partitions) / len(current)
    owners: dict[T, set[str]] = {partition: set() for partition in partitions}
    assigned: dict[str, list[T]] = {}
    missing: dict[str, int] = {}  # by member, number of partitions below its quota
    for number, (member_id, owned) in enumerate(current.items()):
        quota = ceil(partitions_per_member * (number + 1)) - ceil(partitions_per_member * number)
        assigned[member_id] = []
        for partition in owned:
            has_room = len(assigned[member_id]) < quota
            if has_room and partition in owners and len(owners[partition]) < members_per_partition:
                assigned[member_id].append(partition)
                owners[partition].add(member_id)
        missing[member_id] = quota - len(assigned[member_id])
    unfilled = deque(member_id for member_id, count in missing.items() if count)
    for partition in partitions:
        for _ in range(len(unfilled)):
            if len(owners[partition]) >= members_per_partition:
                break
            member_id = unfilled.popleft()
            if member_id not in owners[partition]:
                owners[partition].add(member_id)
                assigned[member_id].append(partition)
                missing[member_id] -= 1
            if missing[member_id]:
                unfilled.append(member_id)
    return assigned
