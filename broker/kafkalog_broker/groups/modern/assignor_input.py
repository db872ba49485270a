"""Input of the server-side assignors, made from the members of a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kafkalog_broker.groups.assignors.group_spec import AssignedMember, GroupSpec
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.modern_group import MemberT, ModernGroup


def build_group_spec(
    context: GroupContext,
    group: ModernGroup[Any],
    members: Mapping[str, MemberT],
    topics_of: Callable[[MemberT], frozenset[str]],
    partitions_of: Callable[[UUID], Sequence[int]],
) -> GroupSpec:
    """Return the input of an assignor for members of a group.

    Args:
        topics_of: Returns the names of the topics that a member subscribes to.
        partitions_of: Returns the partitions of a topic that can be assigned.
    """
    topic_ids: dict[frozenset[str], list[UUID]] = {}  # by the topic names of each distinct subscription
    assigned = {}
    for member_id in sorted(members):
        member = members[member_id]
        topics = topics_of(member)
        if topics not in topic_ids:
            topic_ids[topics] = context.topic_ids(topics)
        assigned[member_id] = AssignedMember(topic_ids[topics], group.target_of(member), member.instance_id)
    return GroupSpec(assigned, len(topic_ids) == 1, partitions_of)
