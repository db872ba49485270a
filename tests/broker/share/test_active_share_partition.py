"""The lock timer of an active share partition."""

from __future__ import annotations

from kafkalog_broker.errors import ErrorCode
from tests.broker.share.helpers.active_partition import ActivePartition


def test_lock_that_expires_before_older_ones_moves_the_timer_forward() -> None:
    one = ActivePartition()
    assert one.get(0, 9) == [(0, 9, 1)]
    one.lock_ms = 1_000
    one.time.advance(100)
    assert one.get(10, 19) == [(10, 19, 1)]
    assert one.time.waiting == 1
    one.time.advance(999)
    assert one.coordinator.written == []
    one.time.advance(1)
    assert one.coordinator.written == [(10, 19)]
    one.time.advance(30_000 - 1_100)
    assert one.coordinator.written == [(10, 19), (0, 9)]
    assert one.time.waiting == 0


def test_lock_that_expires_later_does_not_move_the_timer() -> None:
    one = ActivePartition(1_000)
    one.get(0, 9)
    one.lock_ms = 30_000
    one.get(10, 19)
    assert one.time.waiting == 1
    one.time.advance(1_000)
    assert one.coordinator.written == [(0, 9)]
    one.time.advance(29_000)
    assert one.coordinator.written == [(0, 9), (10, 19)]


def test_expired_locks_that_could_not_be_persisted_are_retried_with_the_next_expiration() -> None:
    one = ActivePartition(1_000)
    one.get(0, 9)
    one.coordinator.failure = ErrorCode.coordinator_not_available
    one.time.advance(1_000)
    one.lock_ms = 100
    one.get(10, 19)
    one.coordinator.failure = None
    one.time.advance(100)
    assert one.coordinator.written == [(0, 9), (10, 19)]
    one.active.close()
    assert one.time.waiting == 0
