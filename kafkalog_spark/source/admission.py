"""How much of what is there goes into the next batch of a stream. Decisions on plain values; the clock is passed in.

The rules of `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay` are those of Spark's Kafka source
(KafkaMicroBatchStream.rateLimit, delayBatch).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafkalog_spark.source.offset_range_limit import TopicPartition


@dataclass(frozen=True, slots=True)
class Limits:
    """What one batch may hold: offsets, bytes; None for no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_bytes: int | None = None

    def __bool__(self) -> bool:
        return (self.max_offsets, self.min_offsets, self.max_bytes) != (None, None, None)


def shares(limit: int, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """`limit` divided in proportion to the sizes, none larger than its size. A size above 0 gets at least 1, so that
    no small partition starves: together they can be more than the limit, by one for each partition.

    Whole numbers throughout: in the connector's floating point a limit equal to the total may leave one over.
    """
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:
        return dict(sizes)
    return {tp: max(limit * size // total, 1) if size > 0 else 0 for tp, size in sizes.items()}


def limited_ends(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The ends that about `limit` offsets from `starts` lead to. A partition whose end is not above its start keeps
    its end. Both name the same partitions."""
    sizes = {tp: ends[tp] - starts[tp] for tp in ends if ends[tp] > starts[tp]}
    taken = shares(limit, sizes)
    return {tp: starts[tp] + taken[tp] if tp in taken else end for tp, end in ends.items()}


def now_ms() -> int:
    """Ms of a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


class BatchDelay:
    """`minOffsetsPerTrigger` and `maxTriggerDelay` (ms): whether a batch waits for more.

    The first one never does. Afterwards a batch runs when there are enough offsets, or when the last one that ran is
    as long ago as the delay.
    """

    def __init__(self, max_delay_ms: int, clock_ms: Callable[[], int] = now_ms) -> None:
        self._max_delay_ms = max_delay_ms
        self._clock_ms = clock_ms
        self._last_ms: int | None = None

    def holds_back(self, offsets: int, least: int) -> bool:
        """Whether a batch of so many offsets has to wait, when `least` are wanted."""
        now = self._clock_ms()
        if self._last_ms is not None and now - self._last_ms < self._max_delay_ms and offsets < least:
            return True
        self._last_ms = now
        return False
