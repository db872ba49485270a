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


def test_what_was_too_fast_is_slept_off():
    time = Time()
    limited = throttler(time, 1000)
    for _ in range(10):
        time.now += 0.1
        limited.maybe_throttle(200)
    assert sum(time.slept) + 1.0 == 2.0  # 2,000 bytes take two seconds


def test_what_is_slow_enough_is_not_held_up():
    time = Time()
    limited = throttler(time, 1000)
    for _ in range(10):
        time.now += 0.4
        limited.maybe_throttle(300)
    assert time.slept == []


def test_another_rate_holds_from_then_on():
    time = Time()
    limited = throttler(time, math.inf)
    time.now = 1.0
    limited.maybe_throttle(10**9)
    assert time.slept == []
    limited.rate = 100
    time.now = 2.0
    limited.maybe_throttle(300)
    assert time.slept == [2.0]
