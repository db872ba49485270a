"""Initial rebalance delay of a streams group: its first target assignment waits, so that further members can join."""

from __future__ import annotations

from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_records import GroupType
from kafkalog_broker.groups.modern.group_settings import StreamsGroupSettings
from kafkalog_broker.groups.modern.modern_groups import ModernGroups
from kafkalog_broker.groups.modern.target_assignment import TargetAssignment, put_target_assignment
from kafkalog_broker.groups.streams.streams_group import StreamsGroup, StreamsMember
from kafkalog_broker.groups.streams.streams_target_assignment import assign_tasks, is_large_streams_assignment


def put_streams_target_assignment(
    groups: ModernGroups[StreamsGroup],
    changes: GroupChanges,
    group: StreamsGroup,
    settings: StreamsGroupSettings,
    epoch: int,
    updated: StreamsMember,
) -> TargetAssignment:
    """Put the target assignment of a group epoch if it is due, and return the part of the member `updated`."""
    if groups.timer.is_scheduled(_timer_key(group.group_id)):
        return TargetAssignment(group.assignment_epoch, {}, "initial rebalance delay")
    return put_target_assignment(
        groups, changes, group, epoch, updated,
        interval_ms=settings.assignment_interval_ms,
        is_large=is_large_streams_assignment,
        assign=assign_tasks,
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
