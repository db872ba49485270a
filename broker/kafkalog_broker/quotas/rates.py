"""How much in which time: Kafka's Rate over samples, its TokenBucket, and the throttle times that follow from them.

Times are ms of a clock that only rises. Kafka's org.apache.kafka.common.metrics.stats and QuotaUtils are what the
figures are held to.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

MAX_THROTTLE_MS = 2**31 - 1
"""What throttle_time_ms can say. Nobody has to wait longer, however small the limit is: 25 days."""


def _whole_ms(wait_ms: float) -> int:
    """Rounded as Kafka does it, and no more than can be said: it may be infinite."""
    return math.floor(min(wait_ms, MAX_THROTTLE_MS) + 0.5)


@dataclass(frozen=True, slots=True)
class Windows:
    """quota.window.num and quota.window.size.seconds, or those of controller.quota."""

    count: int
    ms: int


class Rate:
    """What was recorded in the last windows, a second. (Kafka's Rate over a WindowedSum.)"""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[list[float]] = deque(maxlen=windows.count + 1)  # start, last event, sum

    def record(self, value: float, now_ms: int) -> None:
        """A negative value takes back what was recorded."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._windows.ms:
            samples.append([now_ms, now_ms, 0.0])
        last = samples[-1]
        last[1] = now_ms
        last[2] += value

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The rate, and over how many ms: of windows that are not there yet, but for the current one, all count."""
        samples, windows = self._samples, self._windows
        while samples and now_ms - samples[0][1] >= windows.count * windows.ms:
            samples.popleft()
        elapsed = now_ms - int(samples[0][0]) if samples else 0
        missing = windows.count - 1 - elapsed // windows.ms
        if missing > 0:
            elapsed += missing * windows.ms
        elapsed = max(elapsed, 1)
        return sum(sample[2] for sample in samples) / (elapsed / 1000), elapsed

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to wait until the rate is at `limit` when nothing comes; 0 while it is not above it."""
        rate, over_ms = self.measure(now_ms)
        return _whole_ms((rate - limit) / limit * over_ms) if rate > limit else 0

    def is_idle(self, now_ms: int) -> bool:
        """Whether forgetting it changes nothing."""
        self.measure(now_ms)
        return not self._samples


class TokenBucket:
    """Tokens come at the rate of the limit, up to those of all windows; what is done takes some, also more than there
    are (KIP-599)."""

    __slots__ = ("_at_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._at_ms: int | None = None
        self._tokens = 0.0

    def tokens(self, limit: float, now_ms: int) -> float:
        """What there is now; below 0 more was done than allowed."""
        full = limit * self._windows.count * self._windows.ms / 1000
        if self._at_ms is None:
            self._tokens = full
        else:
            self._tokens = min(full, self._tokens + (now_ms - self._at_ms) * limit / 1000)
        self._at_ms = now_ms
        return self._tokens

    def record(self, value: float, limit: float, now_ms: int) -> None:
        self.tokens(limit, now_ms)
        self._tokens = min(limit * self._windows.count * self._windows.ms / 1000, self._tokens - value)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        tokens = self.tokens(limit, now_ms)
        return _whole_ms(-tokens / limit * 1000) if tokens < 0 else 0
