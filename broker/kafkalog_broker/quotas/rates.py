"""Rates and throttle times, computed as Kafka's Rate, TokenBucket and QuotaUtils do. Times are ms of a monotonic
clock."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

MAX_THROTTLE_MS = 2**31 - 1
"""Upper bound of a throttle time: throttle_time_ms in responses is an int32."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Number of windows and length of one in ms (quota.window.num and quota.window.size.seconds, or those of
    controller.quota)."""

    count: int
    ms: int


@dataclass(slots=True)
class _Sample:
    """Sum of the values recorded in one window."""

    start_ms: int
    last_event_ms: int
    total: float


class MeasuredRate(NamedTuple):
    """A rate per second, and the length of time in ms over which it was measured."""

    per_second: float
    elapsed_ms: int


class Rate:
    """Recorded values per second over the last windows (Kafka's Rate over a WindowedSum)."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque(maxlen=windows.count + 1)

    def record(self, value: float, now_ms: int) -> None:
        """Add `value` to the current window. A negative value takes back an earlier one."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._windows.ms:
            samples.append(_Sample(now_ms, now_ms, 0.0))
        last = samples[-1]
        last.last_event_ms = now_ms
        last.total += value

    def measure(self, now_ms: int) -> MeasuredRate:
        """Return the current rate. Windows before the first recorded value count as full length, so that the first
        values do not look like a burst."""
        samples, windows = self._samples, self._windows
        while samples and now_ms - samples[0].last_event_ms >= windows.count * windows.ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        missing = windows.count - 1 - elapsed_ms // windows.ms
        if missing > 0:
            elapsed_ms += missing * windows.ms
        elapsed_ms = max(elapsed_ms, 1)
        return MeasuredRate(sum(sample.total for sample in samples) / (elapsed_ms / 1000), elapsed_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time after which the rate falls to `limit` if nothing more is recorded; 0 if it is not above."""
        rate, elapsed_ms = self.measure(now_ms)
        return _whole_ms((rate - limit) / limit * elapsed_ms) if rate > limit else 0


class TokenBucket:
    """Token bucket of KIP-599. It refills at the rate of the limit, holds at most the tokens of all windows, and may
    become negative."""

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._updated_ms: int | None = None
        self._tokens = 0.0

    def tokens(self, limit: float, now_ms: int) -> float:
        """Return the tokens that are left; negative if more were used than the limit allows."""
        if self._updated_ms is None:
            self._tokens = self._capacity(limit)
        else:
            self._tokens = min(self._capacity(limit), self._tokens + (now_ms - self._updated_ms) * limit / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def record(self, value: float, limit: float, now_ms: int) -> None:
        """Use `value` tokens, even if fewer are left. A negative value returns tokens."""
        self._tokens = min(self._capacity(limit), self.tokens(limit, now_ms) - value)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time after which the bucket is no longer negative."""
        tokens = self.tokens(limit, now_ms)
        return _whole_ms(-tokens / limit * 1000) if tokens < 0 else 0

    def _capacity(self, limit: float) -> float:
        return limit * self._windows.count * self._windows.ms / 1000


def _whole_ms(wait_ms: float) -> int:
    return math.floor(min(wait_ms, MAX_THROTTLE_MS) + 0.5)
