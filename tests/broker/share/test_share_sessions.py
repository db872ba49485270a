"""Limits of share sessions."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.share.share_sessions import MAX_PARTITIONS, SessionKey, ShareSessions, TopicIdPartition

ONE, TWO = SessionKey("g", "one"), SessionKey("g", "two")


def partitions(first: int, count: int) -> list[TopicIdPartition]:
    return [TopicIdPartition(UUID(int=1), index) for index in range(first, first + count)]


def test_partitions_of_all_sessions_together_are_limited() -> None:
    """Who goes beyond that has no session any more; the others keep theirs."""
    sessions = ShareSessions(2)
    one = sessions.begin(ONE, partitions(0, MAX_PARTITIONS - 2))
    two = sessions.begin(TWO, partitions(0, 1))
    sessions.update(two, partitions(0, 2), ())
    sessions.update(two, partitions(7, 1), partitions(0, 1))
    with pytest.raises(BrokerError) as refused:
        sessions.update(two, partitions(8, 1), ())
    assert refused.value.code is ErrorCode.share_session_limit_reached
    assert not sessions.is_current(two)
    assert sessions.is_current(one)
    with pytest.raises(BrokerError, match="at most 100000 partitions"):
        sessions.begin(TWO, partitions(0, 3))
    assert len(sessions) == 1
    assert sessions.begin(TWO, partitions(0, 2)).partitions == dict.fromkeys(partitions(0, 2), False)
