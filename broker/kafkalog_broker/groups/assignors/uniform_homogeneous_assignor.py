"""The assignor `uniform` for members with equal subscriptions (Kafka's UniformHomogeneousAssignmentBuilder).

All members get the same number of partitions, or one more. Within this quota, they keep their partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.groups.assignors.group_spec import (
    AssignedMember,
    Assignments,
    GroupSpec,
    TopicPartition,
    with_partitions,
)
from kafkalog_broker.groups.modern.group_records import Partitions


def assign_homogeneous(group: GroupSpec) -> Assignments:
    """Assign the partitions of all subscribed topics. The group must have members."""
    topics = {topic_id: group.partitions_of(topic_id) for topic_id in next(iter(group.members.values())).topics}
    if not topics:
        return {}
    unassigned = _unassigned_partitions(group, topics)
    assignments: dict[str, Partitions] = {}
    unfilled: list[tuple[str, int]] = []  # member IDs, with the number of partitions below the quota
    min_quota, larger_quotas = divmod(sum(map(len, topics.values())), len(group.members))
    for number, (member_id, member) in enumerate(group.members.items()):
        has_larger_quota = larger_quotas > 0
        kept = _keep(member, topics, min_quota + has_larger_quota, unassigned)
        missing = kept.missing
        if missing > 0 and has_larger_quota and len(group.members) - number > larger_quotas:
            # A later member may already own one partition more. If none does, the last members get the larger quotas.
            missing -= 1
            has_larger_quota = False
        assignments[member_id] = kept.partitions
        if missing > 0:
            unfilled.append((member_id, missing))
        larger_quotas -= has_larger_quota
    start = 0
    for member_id, missing in unfilled:
        assignments[member_id] = with_partitions(assignments[member_id], unassigned[start : start + missing])
        start += missing
    if start < len(unassigned):
        raise AssertionError(f"{len(unassigned) - start} partitions were left unassigned")
    return assignments


def _unassigned_partitions(group: GroupSpec, topics: Mapping[UUID, Sequence[int]]) -> list[TopicPartition]:
    assigned: dict[UUID, set[int]] = {topic_id: set() for topic_id in topics}
    for member in group.members.values():
        for topic_id, partitions in member.partitions.items():
            if topic_id in assigned:
                assigned[topic_id].update(partitions)
    return [
        (topic_id, index)
        for topic_id, indexes in topics.items()
        if len(assigned[topic_id]) < len(indexes)
        for index in indexes
        if index not in assigned[topic_id]
    ]


class _Kept(NamedTuple):
    """Partitions that a member keeps, and the number of partitions below its quota."""

    partitions: Partitions
    missing: int


def _keep(member: AssignedMember, topics: Collection[UUID], quota: int, unassigned: list[TopicPartition]) -> _Kept:
    """Keep the partitions of a member within its quota, and append the others to `unassigned`.

    If the member keeps all partitions, they are returned as the same object, so that the caller can detect this.
    """
    owned = sum(map(len, member.partitions.values()))
    if owned <= quota and all(topic_id in topics for topic_id in member.partitions):
        return _Kept(member.partitions, quota - owned)
    kept: dict[UUID, tuple[int, ...]] = {}
    for topic_id, partitions in member.partitions.items():
        if topic_id not in topics:
            continue
        ordered = sorted(partitions)
        if quota:
            kept[topic_id] = tuple(ordered[:quota])
        unassigned += [(topic_id, partition) for partition in ordered[quota:]]
        quota -= min(quota, len(ordered))
    return _Kept(kept, quota)
