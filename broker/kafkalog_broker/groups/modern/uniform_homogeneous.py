"""The assignor `uniform` where all members subscribe to the same topics (Kafka's UniformHomogeneousAssignmentBuilder).

Every member gets as many partitions as any other, or one more, and keeps what it has as far as that goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from kafkalog_broker.coordinators.java_order import TopicMap, copied, grown, in_map_order, set_of_partitions, uuid_hash
from kafkalog_broker.groups.modern.assignor_input import AssignedMember, Assignments, GroupSpec
from kafkalog_broker.groups.modern.values import Partitions

TopicPartition = tuple[UUID, int]
Kept = Mapping[UUID, Sequence[int]]
"""What a member keeps: its `partitions` themselves where that is all of them."""


def assign(group: GroupSpec) -> Assignments:
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
    """What a member has now, in the order of Java's maps, which began as copies of what it had before."""
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
    """What each member keeps, and who may have how many more. What is taken away goes to the end of `free`."""
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
    """What a member keeps within its quota, and what is left of that."""
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
