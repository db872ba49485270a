"""Timers of members: when one of them runs out, the member is removed from its group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kafkalog_broker.groups.modern.group_changes import GroupResult
from kafkalog_broker.groups.modern.modern_group import ModernGroup
from kafkalog_broker.groups.modern.modern_groups import ModernGroups

_log = logging.getLogger(__name__)

G = TypeVar("G", bound=ModernGroup[Any])

SESSION_TIMER = "session"  # restarted by every request of the member
REBALANCE_TIMER = "rebalance"  # runs while the member has partitions to revoke
CLASSIC_JOIN_TIMER = "join-again"  # runs while a classic member was told to join again and has not
CLASSIC_SYNC_TIMER = "sync-again"  # runs until a classic member has fetched its assignment
_TIMERS = (SESSION_TIMER, REBALANCE_TIMER, CLASSIC_JOIN_TIMER, CLASSIC_SYNC_TIMER)

RemoveMember = Callable[[ModernGroups[G], G, Any], GroupResult[Any]]
"""Returns the result of removing a member from a group."""


def timer_key(timer: str, group_id: str, member_id: str) -> tuple[str, str, str]:
    return timer, group_id, member_id


def schedule_removal(
    groups: ModernGroups[G], timer: str, group_id: str, member_id: str, delay_ms: int, reason: str,
    remove: RemoveMember[G], *, epoch: int | None = None,
) -> None:  # fmt: skip
    """Start or restart a timer that removes a member.

    Args:
        timer: One of the timers above.
        reason: Why the member is removed, for the log.
        remove: Called when the timer runs out.
        epoch: If given, the member is removed only if it is still in this epoch.
    """

    def expire() -> GroupResult[Any] | None:
        group = groups.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or epoch not in (None, member.epoch):
            return None
        _log.info("group %.200r: member %.200r is removed because %s", group_id, member_id, reason)
        return remove(groups, group, member)

    groups.timer.schedule(timer_key(timer, group_id, member_id), delay_ms, expire)


def cancel_member_timers(groups: ModernGroups[Any], group_id: str, member_ids: Iterable[str]) -> None:
    for member_id in member_ids:
        for timer in _TIMERS:
            groups.timer.cancel(timer_key(timer, group_id, member_id))
