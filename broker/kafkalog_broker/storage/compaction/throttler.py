"""Holds a rate of bytes per second down, as Kafka's Throttler: what was too fast is slept off."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_CHECK_S = 0.3
"""How often the rate is looked at, as in Kafka: shorter, and sleeps would be too short to be exact."""


class Throttler:
    """rate: bytes per second; shared by threads, all of which wait. monotonic: a clock in seconds. wait: sleeps that
    many seconds."""

    def __init__(
        self,
        rate: float,
        wait: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._wait = wait
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since = monotonic()
        self._observed = 0

    def set_rate(self, rate: float) -> None:
        """From now on; a wait that has begun ends as it was meant."""
        self._rate = rate

    def observed(self, size: int) -> None:
        """`size` bytes were read or written; sleeps when that was too fast."""
        with self._lock:
            self._observed += size
            elapsed = self._monotonic() - self._since
            if elapsed < _CHECK_S or not self._observed:
                return
            due = self._observed / max(self._rate, 1.0)  # a rate of 0 is not for ever
            if due > elapsed:
                self._wait(due - elapsed)
            self._since = self._monotonic()
            self._observed = 0
