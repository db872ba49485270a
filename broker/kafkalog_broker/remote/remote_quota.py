"""Limit on the bytes per second that are copied to, or fetched from, remote storage (Kafka's `RLMQuotaManager`)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafkalog_broker.quotas.rates import TokenBucket, Windows


class RemoteQuota:
    """Limit on the average rate over a number of windows. Thread-safe.

    As in Kafka, a burst of as many bytes as all windows but one allow passes without a wait.
    """

    def __init__(
        self, current_limit: Callable[[], int], windows: int, seconds: int, clock_ms: Callable[[], int]
    ) -> None:
        """Create the quota.

        Args:
            current_limit: Returns the allowed bytes per second; a change takes effect with the next call.
            windows: Number of windows.
            seconds: Length of a window.
            clock_ms: Monotonic clock, in ms.
        """
        self._bucket = TokenBucket(Windows(max(windows - 1, 1), seconds * 1000))
        self._current_limit = current_limit
        self._clock_ms = clock_ms
        self._lock = threading.Lock()

    def record(self, size: int) -> None:
        """Count `size` bytes that are being copied or fetched."""
        with self._lock:
            self._bucket.record(size, self._current_limit(), self._clock_ms())

    def wait_ms(self) -> int:
        """Return the time in ms until more bytes may be copied or fetched; 0 if the rate is not above the limit."""
        with self._lock:
            return self._bucket.throttle_ms(self._current_limit(), self._clock_ms())
