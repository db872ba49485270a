"""Which segments a log may drop: decisions on plain values (UnifiedLog.deleteOldSegments).

Three reasons, in Kafka's order: the segment lies below the log start offset, the log is larger than retention.bytes,
the segment is older than retention.ms. Each goes through the segments from the oldest on and stops at the first that
stays. With a cleanup.policy without `delete` only the first reason counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

UNLIMITED = -1
"""Of retention.ms and retention.bytes: any negative value switches the reason off."""


class Reason(Enum):
    """Why segments go; the value is what the broker's log says."""

    LOG_START_OFFSET = "it lies below the log start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "it is older than retention.ms"


class SegmentFacts(NamedTuple):
    """What retention asks of a segment.

    largest_timestamp: ms; of a segment whose records have none, the .log file's time of modification (LogSegment).
    """

    base_offset: int
    size: int
    largest_timestamp: int


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """retention_ms (ms) and retention_bytes of the topic; `deletes`: its cleanup.policy contains `delete`."""

    retention_ms: int
    retention_bytes: int
    deletes: bool = True


@dataclass(frozen=True, slots=True)
class Deletion:
    """What goes: the first `count` segments, the n-th of them for reasons[n].

    `roll_first`: these are all segments, so an empty one must be made at the log end offset before they go.
    `log_start_offset`: where the log begins without them; the caller moves there before a file is renamed.
    """

    count: int
    reasons: tuple[Reason, ...]
    log_start_offset: int
    roll_first: bool

    def __bool__(self) -> bool:
        return self.count > 0


def decide(
    segments: Sequence[SegmentFacts],
    policy: RetentionPolicy,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> Deletion:
    """Which of `segments` (by base offset; the last one is the active one) are to be deleted now.

    No segment goes that holds offsets at or above the high watermark, and never an active one that is empty.
    """
    reasons: list[Reason] = []

    def upper_bound(slot: int) -> int:
        return segments[slot + 1].base_offset if slot + 1 < len(segments) else log_end_offset

    def extend(reason: Reason, goes: Callable[[int], bool]) -> None:
        for slot in range(len(reasons), len(segments)):
            is_last = slot + 1 == len(segments)
            if is_last and segments[slot].size == 0:
                return
            if high_watermark < upper_bound(slot) or not goes(slot):
                return
            reasons.append(reason)

    # The active segment has no next one, whose base offset the log start offset could have reached.
    extend(
        Reason.LOG_START_OFFSET,
        lambda slot: slot + 1 < len(segments) and upper_bound(slot) <= log_start_offset,
    )
    if policy.deletes:
        if policy.retention_bytes >= 0:
            surplus = sum(segment.size for segment in segments[len(reasons) :]) - policy.retention_bytes

            def is_surplus(slot: int) -> bool:
                nonlocal surplus
                if surplus < segments[slot].size or surplus < 0:
                    return False
                surplus -= segments[slot].size
                return True

            extend(Reason.SIZE, is_surplus)
        if policy.retention_ms >= 0:
            extend(Reason.TIME, lambda slot: now_ms - segments[slot].largest_timestamp > policy.retention_ms)
    count = len(reasons)
    new_start = max(log_start_offset, upper_bound(count - 1)) if count else log_start_offset
    return Deletion(count, tuple(reasons), new_start, count > 0 and count == len(segments))
