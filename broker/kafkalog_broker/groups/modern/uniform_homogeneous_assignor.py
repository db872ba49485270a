"""The assignor `uniform` for members with equal subscriptions (Kafka's UniformHomogeneousAssignmentBuilder).

All members get equally many partitions, or one more, and keep the partitions that they have within that quota.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from kafkalog_broker.groups.modern.group_records import Partitions
from kafkalog_broker.groups.modern.group_spec import (
    AssignedMember,
    Assignments,
    GroupSpec,
    TopicPartition,
    with_partitions,
)


def assign_homogeneous(group: GroupSpec) -> Assignments:
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
        kept[member_id] = with_partitions(kept[member_id], free[start : start + quota])
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
