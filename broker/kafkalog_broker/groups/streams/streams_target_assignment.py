"""Target assignment of a streams group."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_broker.groups.modern.assignment_cost import MAX_INLINE_COST, MEMBER_COST
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_records import Partitions
from kafkalog_broker.groups.streams.streams_group import StreamsGroup, StreamsMember
from kafkalog_broker.groups.streams.task_assignor import AssignedTasks, TaskCount, assign_sticky

_STANDBY_COST = 4
"""Cost of assigning a standby task, relative to the cost of assigning an active task."""


def is_large_streams_assignment(context: GroupContext, group: StreamsGroup, _: StreamsMember) -> bool:
    """Return whether the assignment of a group is computed in a thread."""
    subtopologies = {} if group.configured is None else group.configured.subtopologies
    tasks = sum(configured_subtopology.tasks for configured_subtopology in subtopologies.values())
    replicas = context.streams_settings(group.group_id).standby_replicas
    return MEMBER_COST * len(group.members) + tasks * (1 + _STANDBY_COST * replicas) > MAX_INLINE_COST


def assign_tasks(
    context: GroupContext, group: StreamsGroup, members: Mapping[str, StreamsMember]
) -> dict[str, Partitions]:
    """Compute the target assignment of members. May run in a thread, on a snapshot of the group."""
    configured = group.configured
    if configured is None or configured.problem is not None:
        return {}
    tasks = {
        member_id: AssignedTasks(member.process_id, group.target.get(member_id, {}))
        for member_id, member in members.items()
    }
    counts = {
        name: TaskCount(configured_subtopology.tasks, bool(configured_subtopology.subtopology.state_changelog_topics))
        for name, configured_subtopology in configured.subtopologies.items()
    }
    return assign_sticky(tasks, counts, context.streams_settings(group.group_id).standby_replicas)
