from __future__ import annotations

import math

from kafkalog_broker.storage.compaction.throttler import Throttler


class Time:
    def __init__(self):
        self.now = 0.0
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(round(seconds, 6))
        self.now += seconds


def throttler(time, rate):
    return Throttler(rate, wait=time.sleep, monotonic=lambda: time.now)


def test_throttler_above_its_rate_sleeps_for_the_excess():
    time = Time()
    limited = throttler(time, 1000)
    for _ in range(10):
        time.now += 0.1
        limited.maybe_throttle(200)
    assert sum(time.slept) + 1.0 == 2.0  # 2,000 bytes take two seconds


def test_throttler_below_its_rate_does_not_sleep():
    time = Time()
    limited = throttler(time, 1000)
    for _ in range(10):
        time.now += 0.4
        limited.maybe_throttle(300)
    assert time.slept == []


def test_throttler_with_a_changed_rate_applies_it_from_then_on():
    time = Time()
    limited = throttler(time, math.inf)
    time.now = 1.0
    limited.maybe_throttle(10**9)
    assert time.slept == []
    limited.rate = 100
    time.now = 2.0
    limited.maybe_throttle(300)
    assert time.slept == [2.0]
