"""The error for a member of a consumer or streams group whose epoch is stale, in OffsetCommit and OffsetFetch."""

from __future__ import annotations

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.modern_group import ReconcilingMember


def stale_member_epoch(member: ReconcilingMember, message: str) -> BrokerError:
    """Return STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION for a member that uses the classic protocol."""
    return BrokerError(
        ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation, message
    )
