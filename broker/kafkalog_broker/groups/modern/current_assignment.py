"""Reconciliation of a member of a consumer or streams group with its target assignment (CurrentAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_records import GroupType, MemberState, Owned, Partitions
from kafkalog_broker.groups.modern.modern_group import ReconcilingMember

ReconcilingT = TypeVar("ReconcilingT", bound=ReconcilingMember)

ReportedOwnership = Mapping[Any, Collection[int]]
"""Partitions or tasks that a member reports to own, by topic ID or TasksKey."""


def next_assignment(
    group_type: GroupType,
    member: ReconcilingT,
    target_epoch: int,
    target: Partitions,
    reported: ReportedOwnership | None,
    *,
    is_free: Callable[[Any, int], bool],
    next_revocation_epoch: int,
) -> ReconcilingT:
    """Return the member one step closer to its target assignment.

    A member first revokes partitions or tasks that are not in its target, and stays in its epoch until it no longer
    reports them. It gets new partitions or tasks when they are free. The same member is returned if it has reached the
    target, or has not revoked its partitions yet.

    Args:
        reported: None if the heartbeat does not contain the owned partitions or tasks.
        is_free: Whether a partition or task, by key and number, can be assigned to the member.
        next_revocation_epoch: Epoch of the returned member if it was UNREVOKED_PARTITIONS, has revoked these and must
            revoke others. Consumer groups and streams groups differ here.

    Raises:
        BrokerError: fenced_member_epoch if the member is in a state that this release does not know.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target_epoch:
            return member
        case MemberState.UNREVOKED_PARTITIONS if still_owns(member.pending_revocation, reported):
            return member
        case MemberState.UNKNOWN if reported is None or reported:
            owned_name = "tasks" if group_type is GroupType.STREAMS else "partitions"
            raise BrokerError(
                ErrorCode.fenced_member_epoch,  # with Kafka's message, "a unknown" included
                f"The {group_type.value} group member is in a unknown state. The member must abandon all its "
                f"{owned_name} and rejoin.",
            )
    assigned: dict[Any, dict[int, int]] = {}
    revoked: dict[Any, dict[int, int]] = {}
    gained: dict[Any, list[int]] = {}
    has_unreleased = False
    for key in dict.fromkeys((*target, *member.assigned)):
        wanted = frozenset(target.get(key, ()))
        owned = member.assigned.get(key, {})
        kept = {partition: epoch for partition, epoch in owned.items() if partition in wanted}
        if kept:
            assigned[key] = kept
        if len(kept) < len(owned):
            revoked[key] = {partition: epoch for partition, epoch in owned.items() if partition not in wanted}
        if len(kept) == len(wanted):
            continue
        for partition in sorted(wanted.difference(kept)):
            if is_free(key, partition):
                gained.setdefault(key, []).append(partition)
            else:
                has_unreleased = True
    if revoked and still_owns(revoked, reported):
        epoch_by_state = {MemberState.UNKNOWN: target_epoch, MemberState.UNREVOKED_PARTITIONS: next_revocation_epoch}
        epoch = epoch_by_state.get(member.state, member.epoch)
        return with_assignment(member, epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoked)
    for key, partitions in gained.items():
        assigned.setdefault(key, {}).update(dict.fromkeys(partitions, target_epoch))
    state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
    return with_assignment(member, target_epoch, state, assigned, {})


def with_assignment(
    member: ReconcilingT, epoch: int, state: MemberState, assigned: Owned, pending_revocation: Owned
) -> ReconcilingT:
    """Return the member with this epoch and assignment. Its current epoch becomes the previous one."""
    return replace(
        member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned,
        pending_revocation=pending_revocation,
    )  # fmt: skip


def still_owns(revoked: Owned, reported: ReportedOwnership | None) -> bool:
    """Return whether a member still reports partitions or tasks that it has to revoke. True if the report is None."""
    if reported is None:
        return True
    return any(
        partition in revoked[key] for key, partitions in reported.items() if key in revoked for partition in partitions
    )
