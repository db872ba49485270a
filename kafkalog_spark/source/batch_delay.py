"""Delay of small batches of a stream (Kafka source: `delayBatch`)."""

from __future__ import annotations

import time
from collections.abc import Callable


def now_ms() -> int:
    """Return milliseconds of a monotonic clock."""
    return time.monotonic_ns() // 1_000_000


class BatchDelay:
    """Decides whether a batch waits for more offsets (`minOffsetsPerTrigger`, `maxTriggerDelay`).

    The first batch never waits. Every other batch waits until there are enough offsets, or until the delay has passed
    since the last batch that did not wait.
    """

    def __init__(self, max_delay_ms: int, clock_ms: Callable[[], int] = now_ms) -> None:
        self._max_delay_ms = max_delay_ms
        self._clock_ms = clock_ms
        self._last_ms: int | None = None

    def holds_back(self, offsets: int, least: int) -> bool:
        """Return True if a batch of `offsets` offsets must wait. Otherwise the delay begins again.

        Args:
            offsets: Number of offsets of the batch.
            least: Number of offsets from which on a batch need not wait.
        """
        now = self._clock_ms()
        if self._last_ms is not None and now - self._last_ms < self._max_delay_ms and offsets < least:
            return True
        self._last_ms = now
        return False
