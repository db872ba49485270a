"""The target assignment of a group, made anew by an assignor (Kafka's TargetAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from kafkalog_broker.coordinators.java_order import copied, grown, in_map_order, texts_in_timeline_order
from kafkalog_broker.coordinators.partition_for import java_hash
from kafkalog_broker.groups.modern.assignor_input import AssignedMember, GroupSpec
from kafkalog_broker.groups.modern.assignors import ASSIGNORS
from kafkalog_broker.groups.modern.changes import Kind, TargetEpochValue
from kafkalog_broker.groups.modern.consumer_group import ConsumerGroup
from kafkalog_broker.groups.modern.draft import Draft
from kafkalog_broker.groups.modern.topics_view import TopicsView
from kafkalog_broker.groups.modern.values import ConsumerMember, Partitions


def may_assign(group: ConsumerGroup, interval_ms: int, now_ms: int) -> bool:
    """Whether the interval between two assignments is over (KIP-1263)."""
    made_at = group.assignment_timestamp_ms
    return not made_at or not interval_ms or now_ms >= made_at + interval_ms


def assign(
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
