"""Target assignment of a share group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from kafkalog_broker.groups.assignors.group_spec import Assignments
from kafkalog_broker.groups.assignors.simple_assignor import assign_simple
from kafkalog_broker.groups.modern.assignment_cost import exceeds_inline_cost
from kafkalog_broker.groups.modern.assignor_input import build_group_spec
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.modern_group import ModernMember
from kafkalog_broker.groups.share.share_group import ShareGroup


def is_large_share_assignment(context: GroupContext, group: ShareGroup, updated: ModernMember) -> bool:
    """Return whether the assignment of a group, after the request of the member `updated`, is computed in a thread."""
    topics = group.subscribed_topics_after([], [updated])
    return exceeds_inline_cost(context, group, topics)


def assign_share_members(context: GroupContext, group: ShareGroup, members: Mapping[str, ModernMember]) -> Assignments:
    """Compute the target assignment of members. May run in a thread, on a snapshot of the group."""

    def partitions_of(topic_id: UUID) -> Sequence[int]:
        shared = group.partitions.initialized.get(topic_id)
        return () if shared is None else shared.partitions

    return assign_simple(build_group_spec(context, group, members, lambda member: member.topics, partitions_of))
