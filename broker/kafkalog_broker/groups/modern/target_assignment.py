"""The target assignment of a group, made when the group epoch is ahead of it (TargetAssignmentBuilder, KIP-1263).

The target assignment of a large group is computed in a thread, so that no heartbeat delays others. Until it is written,
members keep the one that exists.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from kafkalog_broker.groups.assignors.group_spec import Assignments
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_records import GroupRecord, Partitions, RecordKind
from kafkalog_broker.groups.modern.modern_group import ModernGroup
from kafkalog_broker.groups.modern.modern_groups import ModernGroups

_log = logging.getLogger(__name__)

G = TypeVar("G", bound=ModernGroup[Any])

MEMBER_COST = 10
"""Cost of assigning to a member, in partitions."""
MAX_INLINE_COST = 3_000
"""Partitions and members, by their cost, that are assigned within the request. This takes about 3 ms."""

Assign = Callable[[G, Mapping[str, Any]], Assignments]
"""Computes the target assignment of members of a group, by member ID. May be called in a thread, with a snapshot."""


class TargetAssignment(NamedTuple):
    """Epoch of the target assignment, and the partitions or tasks of one member.

    Attributes:
        delayed_by: The configuration that delays the next target assignment, if it is due: "assignment interval".
    """

    epoch: int
    partitions: Partitions
    delayed_by: str | None = None


def put_target_assignment(
    groups: ModernGroups[G],
    changes: GroupChanges,
    group: G,
    epoch: int,
    updated: Any,
    *,
    interval_ms: int,
    is_large: Callable[[G, Any], bool],
    assign: Assign[G],
) -> TargetAssignment:
    """Put the target assignment of a group epoch if it is due, and return that of one member.

    Args:
        updated: The member after this request; it may be new, or replace a static member.
        interval_ms: Least time between two target assignments.
        is_large: Whether the assignment is computed in a thread.
        assign: Computes the assignment.
    """
    current = TargetAssignment(group.assignment_epoch, group.target_of(updated))
    if group.assignment_epoch >= epoch:
        return current
    made_at_ms = group.assignment_timestamp_ms
    if made_at_ms and interval_ms and groups.context.clock.now_ms() < made_at_ms + interval_ms:
        return current._replace(delayed_by="assignment interval")
    if is_large(group, updated):
        changes.on_commit(lambda: _assign_in_background(groups, group.group_id, assign))
        return current
    _log.info("group %.200r: target assignment for epoch %d", group.group_id, epoch)
    return TargetAssignment(epoch, put_assignments(groups, changes, group, epoch, updated, assign))


def put_assignments(
    groups: ModernGroups[Any], changes: GroupChanges, group: G, epoch: int, updated: Any, assign: Assign[G]
) -> Partitions:
    """Compute and put the target assignment of a group epoch, and return that of `updated`."""
    members = {**group.members, updated.member_id: updated}
    replaced_id = None if updated.instance_id is None else group.static_members.get(updated.instance_id)
    if replaced_id not in (None, updated.member_id):
        members.pop(replaced_id, None)
    assignments = assign(group, members)
    for member_id in members:
        partitions = assignments.get(member_id, {})
        before = group.target.get(member_id)
        if before is not partitions and before != partitions:
            changes.put_target_assignment(member_id, partitions)
    changes.put_target_assignment_epoch(epoch, groups.context.clock.now_ms())
    return assignments.get(updated.member_id, {})


def cancel_background_assignment(groups: ModernGroups[Any], group_id: str) -> None:
    """Drop an assignment that is being computed for a group that is removed."""
    groups.executor.cancel(_executor_key(group_id))


def _assign_in_background(groups: ModernGroups[G], group_id: str, assign: Assign[G]) -> None:
    group = groups.groups.get(group_id)
    if group is None or not group.members or groups.executor.is_scheduled(_executor_key(group_id)):
        return
    seen = group.snapshot()

    def compute() -> GroupChanges:
        changes = GroupChanges(seen.group_type, group_id)
        put_assignments(groups, changes, seen, seen.epoch, next(iter(seen.members.values())), assign)
        return changes

    groups.executor.schedule(
        _executor_key(group_id), compute, lambda computed: _background_assignment(groups, seen, computed)
    )


def _background_assignment(
    groups: ModernGroups[G], seen: G, computed: GroupChanges | Exception
) -> GroupResult[None] | None:
    """Return the result that writes the assignment of the snapshot `seen`; None if it no longer fits the group."""
    group = groups.groups.get(seen.group_id)
    if group is None or isinstance(computed, Exception):
        return None  # for example, a topic was deleted meanwhile; the next heartbeat tries again
    if group.assignment_epoch >= seen.epoch:
        return None
    if group.static_members != seen.static_members:
        return None  # a static member came back with another member ID, which does not raise the group epoch
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
