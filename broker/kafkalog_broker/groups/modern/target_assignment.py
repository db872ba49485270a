"""The target assignment of a group, computed when the group epoch is ahead of its epoch (TargetAssignmentBuilder).

For a large group it is computed in a thread (KIP-1263), so that no heartbeat delays others. Until the new target
assignment is written, the previous one stays in force.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from kafkalog_broker.groups.assignors.group_spec import Assignments
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_records import GroupRecord, Partitions, RecordKind
from kafkalog_broker.groups.modern.modern_group import ModernGroup
from kafkalog_broker.groups.modern.modern_groups import ModernGroups

_log = logging.getLogger(__name__)

GroupT = TypeVar("GroupT", bound=ModernGroup[Any])

IsLarge = Callable[[GroupContext, GroupT, Any], bool]
"""Whether the assignment of a group with this member, after its request, is computed in a thread."""
Assign = Callable[[GroupContext, GroupT, Mapping[str, Any]], Assignments]
"""Computes the target assignment of members of a group, by member ID. May be called in a thread, with a snapshot."""


class TargetAssignment(NamedTuple):
    """The target assignment of one member.

    Attributes:
        epoch: Epoch of the target assignment of the group.
        partitions: Partitions or tasks of the member.
        delayed_by: The configuration that delays the next target assignment, such as "assignment interval".
    """

    epoch: int
    partitions: Partitions
    delayed_by: str | None = None


def put_target_assignment(
    groups: ModernGroups[GroupT],
    changes: GroupChanges,
    group: GroupT,
    epoch: int,
    updated: Any,
    *,
    interval_ms: int,
    is_large: IsLarge[GroupT],
    assign: Assign[GroupT],
) -> TargetAssignment:
    """Put the target assignment of a group epoch if it is due, and return the part of one member.

    Args:
        updated: This member, after its request. It may be new, or replace a static member.
        interval_ms: Least time between two target assignments.
        is_large: See `IsLarge`.
        assign: See `Assign`.
    """
    current = TargetAssignment(group.assignment_epoch, group.target_of(updated))
    if group.assignment_epoch >= epoch:
        return current
    assigned_at_ms = group.assignment_timestamp_ms
    if assigned_at_ms and interval_ms and groups.context.clock.now_ms() < assigned_at_ms + interval_ms:
        return current._replace(delayed_by="assignment interval")
    if is_large(groups.context, group, updated):
        changes.on_commit(lambda: _assign_in_background(groups, group.group_id, assign))
        return current
    _log.info("group %.200r: target assignment for epoch %d", group.group_id, epoch)
    return TargetAssignment(epoch, _put_assignments(groups, changes, group, epoch, updated, assign))


def cancel_background_assignment(groups: ModernGroups[Any], group_id: str) -> None:
    """Discard the assignment that a thread computes for a removed group."""
    groups.executor.cancel(_executor_key(group_id))


def _put_assignments(
    groups: ModernGroups[Any], changes: GroupChanges, group: GroupT, epoch: int, updated: Any, assign: Assign[GroupT]
) -> Partitions:
    """Compute and put the target assignment of a group epoch, and return the part of the member `updated`."""
    members = {**group.members, updated.member_id: updated}
    replaced_id = None if updated.instance_id is None else group.static_members.get(updated.instance_id)
    if replaced_id not in (None, updated.member_id):
        members.pop(replaced_id, None)
    assignments = assign(groups.context, group, members)
    for member_id in members:
        partitions = assignments.get(member_id, {})
        before = group.target.get(member_id)
        if before is not partitions and before != partitions:
            changes.put_target_assignment(member_id, partitions)
    changes.put_target_assignment_epoch(epoch, groups.context.clock.now_ms())
    return assignments.get(updated.member_id, {})


def _assign_in_background(groups: ModernGroups[GroupT], group_id: str, assign: Assign[GroupT]) -> None:
    group = groups.groups.get(group_id)
    if group is None or not group.members or groups.executor.is_scheduled(_executor_key(group_id)):
        return
    snapshot = group.snapshot()

    def compute() -> GroupChanges:
        changes = GroupChanges(snapshot.group_type, group_id)
        _put_assignments(groups, changes, snapshot, snapshot.epoch, next(iter(snapshot.members.values())), assign)
        return changes

    groups.executor.schedule(
        _executor_key(group_id), compute, lambda computed: _background_assignment(groups, snapshot, computed)
    )


def _background_assignment(
    groups: ModernGroups[GroupT], snapshot: GroupT, computed: GroupChanges | Exception
) -> GroupResult[None] | None:
    """Return the result that writes the assignment of `snapshot`; None if it no longer fits the group."""
    group = groups.groups.get(snapshot.group_id)
    if group is None or isinstance(computed, Exception):
        return None  # for example, a topic was deleted meanwhile; the next heartbeat computes it again
    if group.assignment_epoch >= snapshot.epoch:
        return None
    if group.static_members != snapshot.static_members:
        return None  # a static member has another member ID now, which does not raise the group epoch
    changes = GroupChanges(group.group_type, group.group_id)
    changes.records += [
        record
        for record in computed.records
        if isinstance(record, GroupRecord)
        and (record.kind is RecordKind.TARGET_EPOCH or record.name in group.members)  # without members that left
    ]
    return changes.result(None)


def _executor_key(group_id: str) -> tuple[str, str]:
    return "target-assignment", group_id
