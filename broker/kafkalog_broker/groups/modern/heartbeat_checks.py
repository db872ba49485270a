"""Checks of the heartbeats of consumer, share and streams groups."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.current_assignment import ReportedOwnership
from kafkalog_broker.groups.modern.group_records import GroupType
from kafkalog_broker.groups.modern.modern_group import ModernGroup, ModernMember, ReconcilingMember


def check_not_blank(**fields: str | None) -> None:
    """Raise BrokerError invalid_request if a field, named as in the request, is blank. None is allowed."""
    for name, text in fields.items():
        if text is not None and not text.strip():
            raise BrokerError(ErrorCode.invalid_request, f"{name} can't be empty.")


def check_capacity(group: ModernGroup[Any], max_size: int) -> None:
    """Raise BrokerError group_max_size_reached if the group is full."""
    if len(group.members) >= max_size:
        raise BrokerError(
            ErrorCode.group_max_size_reached,
            f"The {group.group_type.value} group has reached its maximum capacity of {max_size} members.",
        )


def check_member_epoch(
    group_type: GroupType, member: ModernMember, epoch: int, *, accepts_previous: bool, stale_epoch_detail: str = ""
) -> None:
    """Check the epoch in a heartbeat.

    Args:
        accepts_previous: Also accept the previous epoch, since the response with the current epoch may have been lost.
        stale_epoch_detail: Appended to the message about an epoch that is too small.

    Raises:
        BrokerError: fenced_member_epoch.
    """
    if epoch in (0, member.epoch) or (epoch < member.epoch and epoch == member.previous_epoch and accepts_previous):
        return
    relation, detail = ("greater", "") if epoch > member.epoch else ("smaller", stale_epoch_detail)
    raise BrokerError(
        ErrorCode.fenced_member_epoch,
        f"The {group_type.value} group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}){detail}. The member must abandon all its partitions and rejoin.",
    )


def check_reconciling_member_epoch(
    group_type: GroupType, member: ReconcilingMember, epoch: int, reported: ReportedOwnership | None
) -> None:
    """Check the epoch in a heartbeat of a consumer or streams group.

    The previous epoch is accepted if the member reports only what it has been assigned.

    Raises:
        BrokerError: fenced_member_epoch.
    """
    owns_only_assigned = reported is not None and all(
        partition in member.assigned.get(key, ()) for key, partitions in reported.items() for partition in partitions
    )
    check_member_epoch(group_type, member, epoch, accepts_previous=owns_only_assigned)
