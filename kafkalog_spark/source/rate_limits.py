"""Limits of a stream's batch by offsets and by time (Kafka source: `rateLimit`, `delayBatch`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kafkalog_spark.source.offsets import (
    TopicPartition,
)


def shares(limit: int, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """`limit` shared in proportion to the sizes, none above its size; a size above 0 gets at least 1, so that none
    starves. Whole numbers: in the connector's floating point a limit equal to the total may leave one over."""
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:
        return dict(sizes)
    return {tp: max(limit * size // total, 1) if size > 0 else 0 for tp, size in sizes.items()}


def limited_ends(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Ends that about `limit` offsets from `starts` lead to; a partition whose end is not above its start keeps it."""
    sizes = {tp: ends[tp] - starts[tp] for tp in ends if ends[tp] > starts[tp]}
    taken = shares(limit, sizes)
    return {tp: starts[tp] + taken[tp] if tp in taken else end for tp, end in ends.items()}


def now_ms() -> int:
    """Ms of a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


class BatchDelay:
    """`minOffsetsPerTrigger` and `maxTriggerDelay` (ms): the first batch never waits for more, another one until there
    are enough offsets, or the last one that ran is as long ago as the delay."""

    def __init__(self, max_delay_ms: int, clock_ms: Callable[[], int] = now_ms) -> None:
        self._max_delay_ms = max_delay_ms
        self._clock_ms = clock_ms
        self._last_ms: int | None = None

    def holds_back(self, offsets: int, least: int) -> bool:
        """True if a batch of so many offsets has to wait, when `least` are wanted."""
        now = self._clock_ms()
        if self._last_ms is not None and now - self._last_ms < self._max_delay_ms and offsets < least:
            return True
        self._last_ms = now
        return False
