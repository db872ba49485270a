"""Which part of a log is to be compacted, and how its segments are put together: decisions on plain values.

LogCleanerManager.cleanableOffsets, LogToClean, Cleaner.groupSegmentsBySize.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kafkalog_spark.log.format.index_file import MAX_RELATIVE_OFFSET

NEVER_MS = 2**63 - 1
"""The value of max.compaction.lag.ms that sets no limit."""


class SegmentFacts(NamedTuple):
    """What is asked of a segment. largest_timestamp, first_timestamp: ms, called only where a lag is configured."""

    base_offset: int
    size: int
    largest_timestamp: Callable[[], int]
    first_timestamp: Callable[[], int]


class LogFacts(NamedTuple):
    """What is asked of a log. segments: by base offset, the last one is the active one. checkpoint: up to where it was
    cleaned the last time, None when it never was."""

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    checkpoint: int | None


class Policy(NamedTuple):
    """The topic properties min.cleanable.dirty.ratio, min.compaction.lag.ms, max.compaction.lag.ms."""

    dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int


@dataclass(frozen=True, slots=True)
class Cleanable:
    """What of a log can be cleaned now: the keys of [first_dirty_offset, first_uncleanable_offset) count.

    clean_bytes, dirty_bytes: below first_dirty_offset, and between the two. overdue_ms: by how much the oldest dirty
    record is older than max.compaction.lag.ms. resets_checkpoint: the checkpoint lies outside of the log, and is to say
    first_dirty_offset.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    resets_checkpoint: bool

    @property
    def ratio(self) -> float:
        """Share of the dirty bytes; 0 of an empty log."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, policy: Policy) -> bool:
        """Whether the log is dirty enough, or holds a record that has waited long enough."""
        if not self.dirty_bytes:
            return False
        return self.overdue_ms > 0 or self.ratio > policy.dirty_ratio


def cleanable(log: LogFacts, policy: Policy, now_ms: int) -> Cleanable:
    """What of a log can be cleaned now: nothing at or above the active segment, the last stable offset, or the first
    segment with a record younger than min.compaction.lag.ms. Whole segments only."""
    first_dirty, resets = _first_dirty(log)
    active = log.segments[-1]
    dirty = _inactive_from(log.segments, first_dirty)
    bound = min(log.last_stable_offset, active.base_offset)
    if policy.min_lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp() > now_ms - policy.min_lag_ms:
                bound = min(bound, segment.base_offset)
                break
    inactive = _inactive_from(log.segments, max(first_dirty, bound))
    first_uncleanable = inactive[0].base_offset if inactive else active.base_offset
    return Cleanable(
        first_dirty,
        first_uncleanable,
        sum(segment.size for segment in log.segments if segment.base_offset < first_dirty),
        sum(segment.size for segment in dirty if segment.base_offset < first_uncleanable),
        _overdue_ms(dirty, policy.max_lag_ms, now_ms),
        resets,
    )


def _first_dirty(log: LogFacts) -> tuple[int, bool]:
    checkpoint = log.log_start_offset if log.checkpoint is None else log.checkpoint
    if log.log_start_offset <= checkpoint <= log.log_end_offset:
        return checkpoint, False
    return log.log_start_offset, True


def _inactive_from(segments: Sequence[SegmentFacts], offset: int) -> Sequence[SegmentFacts]:
    """The segment that holds `offset`, and those after it; never the active one."""
    if offset >= segments[-1].base_offset:
        return ()
    return segments[max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0) : -1]


def _overdue_ms(dirty: Sequence[SegmentFacts], max_lag_ms: int, now_ms: int) -> int:
    if max_lag_ms >= NEVER_MS:
        return 0
    timestamps = [timestamp for segment in dirty if (timestamp := segment.first_timestamp()) > 0]
    return max(now_ms - max_lag_ms - min(timestamps), 0) if timestamps else 0


class SourceSize(NamedTuple):
    """Sizes of a segment's files in bytes."""

    base_offset: int
    log: int
    offset_index: int
    time_index: int


T = TypeVar("T")


def group_segments(
    segments: Sequence[T], size_of: Callable[[T], SourceSize], max_size: int, max_index_size: int, end_offset: int
) -> list[list[T]]:
    """Neighbours that become one segment: no larger than segment.bytes, with indexes that hold what theirs hold, and
    offsets that fit an index.

    end_offset: after the last segment. A segment that is empty is never left alone, however far its offset reaches.
    """
    groups: list[list[T]] = []
    sizes = [size_of(segment) for segment in segments]
    total = sizes[0] if sizes else None
    for place, size in enumerate(sizes):
        after = sizes[place + 1].base_offset if place + 1 < len(sizes) else end_offset
        if groups and total is not None and _fits(total, size, after - 1, max_size, max_index_size):
            groups[-1].append(segments[place])
            total = SourceSize(
                total.base_offset,
                total.log + size.log,
                total.offset_index + size.offset_index,
                total.time_index + size.time_index,
            )
        else:
            groups.append([segments[place]])
            total = size
    return groups


def _fits(total: SourceSize, size: SourceSize, last_offset: int, max_size: int, max_index_size: int) -> bool:
    return (
        total.log + size.log <= max_size
        and total.offset_index + size.offset_index <= max_index_size
        and total.time_index + size.time_index <= max_index_size
        and (size.log == 0 or last_offset - total.base_offset <= MAX_RELATIVE_OFFSET)
    )
