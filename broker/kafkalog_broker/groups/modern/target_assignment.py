"""The target assignment of a group, computed when the group epoch is ahead of its epoch (TargetAssignmentBuilder).

For a large group it is computed in a thread (KIP-1263), so that no heartbeat delays others. Until the new target
assignment is written, the previous one stays in force.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kafkalog_broker.groups.assignors.group_spec import AssignedMember, Assignments, GroupSpec
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_records import GroupRecord, Partitions, RecordKind
from kafkalog_broker.groups.modern.modern_group import MemberT, ModernGroup
from kafkalog_broker.groups.modern.modern_groups import ModernGroups

_log = logging.getLogger(__name__)

GroupT = TypeVar("GroupT", bound=ModernGroup[Any])

MEMBER_COST = 10
"""Cost of assigning partitions to one member, relative to the cost of assigning one partition."""
MAX_INLINE_COST = 3_000
"""Largest cost of an assignment that is computed within the request. Larger ones would delay other requests."""

Assign = Callable[[GroupT, Mapping[str, Any]], Assignments]
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
    is_large: Callable[[GroupT, Any], bool],
    assign: Assign[GroupT],
) -> TargetAssignment:
    """Put the target assignment of a group epoch if it is due, and return the part of one member.

    Args:
        updated: This member, after its request. It may be new, or replace a static member.
        interval_ms: Least time between two target assignments.
        is_large: Whether the assignment is computed in a thread.
        assign: Computes the assignment.
    """
    current = TargetAssignment(group.assignment_epoch, group.target_of(updated))
    if group.assignment_epoch >= epoch:
        return current
    assigned_at_ms = group.assignment_timestamp_ms
    if assigned_at_ms and interval_ms and groups.context.clock.now_ms() < assigned_at_ms + interval_ms:
        return current._replace(delayed_by="assignment interval")
    if is_large(group, updated):
        changes.on_commit(lambda: _assign_in_background(groups, group.group_id, assign))
        return current
    _log.info("group %.200r: target assignment for epoch %d", group.group_id, epoch)
    return TargetAssignment(epoch, put_assignments(groups, changes, group, epoch, updated, assign))


def put_assignments(
    groups: ModernGroups[Any], changes: GroupChanges, group: GroupT, epoch: int, updated: Any, assign: Assign[GroupT]
) -> Partitions:
    """Compute and put the target assignment of a group epoch, and return the part of the member `updated`."""
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


def cancel_background_assignment(groups: ModernGroups[Any], group_id: str) -> None:
    """Discard the assignment that a thread computes for a removed group."""
    groups.executor.cancel(_executor_key(group_id))


def _assign_in_background(groups: ModernGroups[GroupT], group_id: str, assign: Assign[GroupT]) -> None:
    group = groups.groups.get(group_id)
    if group is None or not group.members or groups.executor.is_scheduled(_executor_key(group_id)):
        return
    snapshot = group.snapshot()

    def compute() -> GroupChanges:
        changes = GroupChanges(snapshot.group_type, group_id)
        put_assignments(groups, changes, snapshot, snapshot.epoch, next(iter(snapshot.members.values())), assign)
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
