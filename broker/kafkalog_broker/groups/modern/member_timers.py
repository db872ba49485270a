"""Timers of members. If a timer expires, the member is removed from its group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from kafkalog_broker.groups.modern.group_changes import GroupResult
from kafkalog_broker.groups.modern.group_records import MemberState
from kafkalog_broker.groups.modern.group_settings import GroupSettings
from kafkalog_broker.groups.modern.modern_group import ReconcilingMember
from kafkalog_broker.groups.modern.modern_groups import ModernGroups

_log = logging.getLogger(__name__)

_SESSION_TIMER = "session"  # restarted by every request of the member
_REBALANCE_TIMER = "rebalance"  # runs while the member has partitions to revoke
CLASSIC_JOIN_TIMER = "join-again"  # runs until a classic member that has to join again does so
CLASSIC_SYNC_TIMER = "sync-again"  # runs until a classic member has fetched its assignment
_TIMERS = (_SESSION_TIMER, _REBALANCE_TIMER, CLASSIC_JOIN_TIMER, CLASSIC_SYNC_TIMER)


def timer_key(timer: str, group_id: str, member_id: str) -> tuple[str, str, str]:
    return timer, group_id, member_id


def schedule_session_timeout(groups: ModernGroups[Any], group_id: str, member_id: str, timeout_ms: int) -> None:
    schedule_removal(groups, _SESSION_TIMER, group_id, member_id, timeout_ms, "the member session expired")


def schedule_rebalance_timeout(groups: ModernGroups[Any], group_id: str, member: ReconcilingMember) -> None:
    """Start the rebalance timeout of a member that has to revoke partitions or tasks; stop it for other members.

    Classic members have the timers CLASSIC_JOIN_TIMER and CLASSIC_SYNC_TIMER instead.
    """
    if member.classic is not None:
        return
    if member.state is not MemberState.UNREVOKED_PARTITIONS:
        groups.timer.cancel(timer_key(_REBALANCE_TIMER, group_id, member.member_id))
        return
    timeout_ms = member.rebalance_timeout_ms
    schedule_removal(
        groups, _REBALANCE_TIMER, group_id, member.member_id, timeout_ms,
        f"it failed to transition from epoch {member.epoch} within {timeout_ms}ms", epoch=member.epoch,
    )  # fmt: skip


def schedule_timers_of_loaded_groups(groups: ModernGroups[Any], settings: Callable[[str], GroupSettings]) -> None:
    """Start the sessions of all members of loaded groups, and the rebalance timeouts of members that have to revoke.

    Args:
        settings: Returns the settings of a group, by its ID.
    """
    for group in groups.groups.values():
        timeout_ms = settings(group.group_id).session_timeout_ms
        for member in group.members.values():
            schedule_session_timeout(groups, group.group_id, member.member_id, timeout_ms)
            if isinstance(member, ReconcilingMember):
                schedule_rebalance_timeout(groups, group.group_id, member)


def schedule_removal(
    groups: ModernGroups[Any], timer: str, group_id: str, member_id: str, delay_ms: int, reason: str, *,
    epoch: int | None = None,
) -> None:  # fmt: skip
    """Start or restart a timer that removes a member.

    Args:
        timer: _SESSION_TIMER, _REBALANCE_TIMER, CLASSIC_JOIN_TIMER or CLASSIC_SYNC_TIMER.
        reason: Why the member is removed, for the log.
        epoch: If given, the member is removed only if it is still in this epoch.
    """

    def expire() -> GroupResult[None] | None:
        group = groups.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or epoch not in (None, member.epoch):
            return None
        _log.info("group %.200r: member %.200r is removed because %s", group_id, member_id, reason)
        return groups.remove_member(groups, group, member)

    groups.timer.schedule(timer_key(timer, group_id, member_id), delay_ms, expire)


def cancel_member_timers(groups: ModernGroups[Any], group_id: str, member_ids: Iterable[str]) -> None:
    for member_id in member_ids:
        for timer in _TIMERS:
            groups.timer.cancel(timer_key(timer, group_id, member_id))
