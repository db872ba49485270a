"""Limit on the I/O rate of the cleaner threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_CHECK_INTERVAL_S = 0.3
"""Interval at which the rate is checked, as in Kafka. With a shorter interval the sleeps would be too short to be
precise."""


@dataclass(eq=False)
class Throttler:
    """Limits a rate by sleeping (Kafka: `Throttler`). Shared by all cleaner threads, which then wait together.

    Attributes:
        rate: Largest number of bytes per second. A change does not affect a wait that has begun.
        wait: Sleeps for some seconds.
        monotonic: Clock in seconds.
    """

    rate: float
    wait: Callable[[float], object] = time.sleep
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._lock, self._since, self._observed = threading.Lock(), self.monotonic(), 0

    def maybe_throttle(self, size: int) -> None:
        """Count `size` bytes (Kafka: `maybeThrottle`)."""
        with self._lock:
            self._observed += size
            elapsed = self.monotonic() - self._since
            if elapsed < _CHECK_INTERVAL_S or not self._observed:
                return
            expected_s = self._observed / max(self.rate, 1.0)  # a rate of 0 must not block for ever
            if expected_s > elapsed:
                self.wait(expected_s - elapsed)
            self._since = self.monotonic()
            self._observed = 0
