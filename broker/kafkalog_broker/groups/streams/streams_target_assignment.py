"""Target assignment of a streams group, and the initial rebalance delay before the first one."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_records import GroupType, Partitions
from kafkalog_broker.groups.modern.group_settings import StreamsGroupSettings
from kafkalog_broker.groups.modern.modern_groups import ModernGroups
from kafkalog_broker.groups.modern.target_assignment import (
    MAX_INLINE_COST,
    MEMBER_COST,
    TargetAssignment,
    put_target_assignment,
)
from kafkalog_broker.groups.streams.streams_group import StreamsGroup, StreamsMember
from kafkalog_broker.groups.streams.task_assignor import AssignedTasks, TaskCount, assign_sticky

_STANDBY_COST = 4
"""Cost of assigning a standby task, relative to the cost of assigning an active task."""


def put_streams_target_assignment(
    groups: ModernGroups[StreamsGroup],
    changes: GroupChanges,
    group: StreamsGroup,
    settings: StreamsGroupSettings,
    epoch: int,
    updated: StreamsMember,
) -> TargetAssignment:
    """Put the target assignment of a group epoch if it is due, and return the part of the member `updated`."""
    context = groups.context
    if groups.timer.is_scheduled(_timer_key(group.group_id)):
        return TargetAssignment(group.assignment_epoch, {}, "initial rebalance delay")
    return put_target_assignment(
        groups, changes, group, epoch, updated,
        interval_ms=settings.assignment_interval_ms,
        is_large=lambda group, _: _is_large(context, group),
        assign=lambda group, members: _assign(context, group, members),
    )  # fmt: skip


def schedule_initial_rebalance(groups: ModernGroups[StreamsGroup], group_id: str, delay_ms: int) -> None:
    """Delay the first target assignment of a group without members, so that further members can join."""
    key = _timer_key(group_id)
    if delay_ms > 0 and not groups.timer.is_scheduled(key):
        groups.timer.schedule(key, delay_ms, lambda: _first_assignment(groups, group_id))


def cancel_initial_rebalance(groups: ModernGroups[StreamsGroup], group_id: str) -> None:
    groups.timer.cancel(_timer_key(group_id))


def _first_assignment(groups: ModernGroups[StreamsGroup], group_id: str) -> GroupResult[None] | None:
    group = groups.groups.get(group_id)
    if group is None or not group.members or group.configured is None:
        return None  # the next heartbeat computes the assignment
    changes = GroupChanges(GroupType.STREAMS, group_id)
    settings, any_member = groups.context.streams_settings(group_id), next(iter(group.members.values()))
    put_streams_target_assignment(groups, changes, group, settings, group.epoch, any_member)
    return changes.result(None)


def _timer_key(group_id: str) -> tuple[str, str, str]:
    return "initial-delay", group_id, ""


def _is_large(context: GroupContext, group: StreamsGroup) -> bool:
    subtopologies = {} if group.configured is None else group.configured.subtopologies
    tasks = sum(configured_subtopology.tasks for configured_subtopology in subtopologies.values())
    replicas = context.streams_settings(group.group_id).standby_replicas
    return MEMBER_COST * len(group.members) + tasks * (1 + _STANDBY_COST * replicas) > MAX_INLINE_COST


def _assign(context: GroupContext, group: StreamsGroup, members: Mapping[str, StreamsMember]) -> dict[str, Partitions]:
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
