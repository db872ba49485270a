"""Cost of computing a target assignment, which decides whether it is computed in a thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.modern_group import ModernGroup

MEMBER_COST = 10
"""Cost of assigning partitions to one member, relative to the cost of assigning one partition."""
MAX_INLINE_COST = 3_000
"""Largest cost of an assignment that is computed within the request. Larger ones would delay other requests."""


def exceeds_inline_cost(context: GroupContext, group: ModernGroup[Any], topics: Iterable[str]) -> bool:
    """Return whether assigning all partitions of topics to the members of a group costs more than MAX_INLINE_COST."""
    return context.has_more_partitions(topics, MAX_INLINE_COST - MEMBER_COST * len(group.members))
