"""Quota of bytes per second for copies to, and fetches from, remote storage."""

from __future__ import annotations

from kafkalog_broker.remote.remote_quota import RemoteQuota
from tests.broker.manual_clock import ManualClock


def test_remote_quota_above_the_window_limit_waits_until_the_average_is_within_it() -> None:
    clock, limit = ManualClock(), [1000]
    quota = RemoteQuota(lambda: limit[0], 11, 1, clock.monotonic_ms)
    quota.record(10_000)
    assert quota.wait_ms() == 0
    quota.record(2_000)
    assert quota.wait_ms() == 2_000
    clock.advance(1_000)
    assert quota.wait_ms() == 1_000
    limit[0] = 2_000  # changed while the broker runs
    assert quota.wait_ms() == 500
    limit[0] = 1_000
    clock.advance(60_000)
    quota.record(10_001)
    assert 0 < quota.wait_ms() <= 2
