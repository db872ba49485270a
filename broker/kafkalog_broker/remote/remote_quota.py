"""Quotas of remote storage: bytes a second that are copied, and fetched (RLMQuotaManager)."""

from __future__ import annotations

import threading
from collections.abc import Callable


class RemoteQuota:
    """limit: bytes a second, asked anew each time. windows, of `seconds` each: as much as all but one of them allow may
    come at once, as Kafka's rate is an average over its windows. clock_ms: monotonic. Threads share it."""

    def __init__(self, limit: Callable[[], int], windows: int, seconds: int, clock_ms: Callable[[], int]) -> None:
        self._limit = limit
        self._window_ms = max(windows - 1, 1) * seconds * 1000
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._level = 0.0  # bytes that are still to be made up for by time
        self._at_ms = clock_ms()

    def record(self, size: int) -> None:
        with self._lock:
            self._drain()
            self._level += size

    def wait_ms(self) -> int:
        """How long to wait until more may be moved; 0 while the rate is not above the limit."""
        with self._lock:
            self._drain()
            limit = self._limit()
            above = self._level - limit * self._window_ms / 1000
            return int(above * 1000 / limit) + 1 if above > 0 else 0

    def _drain(self) -> None:
        now_ms = self._clock_ms()
        self._level = max(0.0, self._level - self._limit() * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
