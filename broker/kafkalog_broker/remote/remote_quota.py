"""Limit on the bytes per second that are copied to, or fetched from, remote storage (Kafka's RLMQuotaManager)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafkalog_broker.quotas.rates import TokenBucket, Windows


class RemoteQuota:
    """Average rate over a number of windows. Thread-safe.

    Kafka averages over all its windows, so that a burst of as many bytes as all windows but one allow passes at once.
    """

    def __init__(self, limit: Callable[[], int], windows: int, seconds: int, clock_ms: Callable[[], int]) -> None:
        """
        Args:
            limit: Returns the allowed bytes per second; a change takes effect with the next call.
            windows: Number of windows.
            seconds: Length of a window.
            clock_ms: Monotonic clock, in ms.
        """
        self._bucket = TokenBucket(Windows(max(windows - 1, 1), seconds * 1000))
        self._limit, self._clock_ms, self._lock = limit, clock_ms, threading.Lock()

    def record(self, size: int) -> None:
        """Count `size` bytes that are moved now."""
        with self._lock:
            self._bucket.record(size, self._limit(), self._clock_ms())

    def wait_ms(self) -> int:
        """Return the ms to wait until more bytes may be moved; 0 while the rate is not above the limit."""
        with self._lock:
            return self._bucket.throttle_ms(self._limit(), self._clock_ms())
