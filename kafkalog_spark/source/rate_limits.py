"""Limits of a stream's batch by offsets and by time (Kafka source: `rateLimit`, `delayBatch`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kafkalog_spark.source.offsets import (
    TopicPartition,
)


def shares(limit: int, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Divide `limit` in proportion to the sizes. No share is above its size; one of a size above 0 is at least 1.

    Uses integers: in the connector's floating point, a limit that equals the total may leave an offset over.
    """
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:
        return dict(sizes)
    return {tp: max(limit * size // total, 1) if size > 0 else 0 for tp, size in sizes.items()}


def limited_ends(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return ends about `limit` offsets behind `starts`. A partition whose end is not above its start keeps its end."""
    sizes = {tp: ends[tp] - starts[tp] for tp in ends if ends[tp] > starts[tp]}
    share = shares(limit, sizes)
    return {tp: starts[tp] + share[tp] if tp in share else end for tp, end in ends.items()}


def now_ms() -> int:
    """Return milliseconds of a monotonic clock."""
    return time.monotonic_ns() // 1_000_000


class BatchDelay:
    """Decides whether a batch waits for more offsets (`minOffsetsPerTrigger`, `maxTriggerDelay`).

    The first batch never waits. Others wait until there are enough offsets, or until the delay has passed since the
    last batch.
    """

    def __init__(self, max_delay_ms: int, clock_ms: Callable[[], int] = now_ms) -> None:
        self._max_delay_ms = max_delay_ms
        self._clock_ms = clock_ms
        self._last_ms: int | None = None

    def holds_back(self, offsets: int, least: int) -> bool:
        """Return True if a batch of `offsets` offsets must wait, given a minimum of `least`."""
        now = self._clock_ms()
        if self._last_ms is not None and now - self._last_ms < self._max_delay_ms and offsets < least:
            return True
        self._last_ms = now
        return False
