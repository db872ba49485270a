"""Part of a log that can be cleaned, and whether it is due (Kafka: `LogCleanerManager.cleanableOffsets`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_spark.format.layout import NO_TIMESTAMP

NEVER_MS = 2**63 - 1  # value of max.compaction.lag.ms that means no limit


class SegmentFacts(NamedTuple):
    """Segment of a log that is not open. Timestamps are in ms."""

    base_offset: int
    size: int
    largest_timestamp: int = NO_TIMESTAMP
    first_timestamp: int = 1


Segments = Sequence[LogSegment] | Sequence[SegmentFacts]
"""Segments of a log. Their timestamps are read only if a compaction lag is configured."""


class LogFacts(NamedTuple):
    """Values of one log on which the decision depends.

    Attributes:
        checkpoint: Offset up to which the log was cleaned; None if it was never cleaned.
    """

    segments: Segments
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    checkpoint: int | None


@dataclass(frozen=True, slots=True)
class Cleanable:
    """Dirty part of a log, from `first_dirty_offset` to `first_uncleanable_offset` (Kafka: `LogToClean`).

    Attributes:
        clean_bytes: Size of the segments below the dirty part.
        dirty_bytes: Size of the segments in it.
        overdue_ms: Time by which the oldest dirty record exceeds max.compaction.lag.ms; 0 if it does not.
        resets_checkpoint: True if the checkpoint is outside of the log and must be set to first_dirty_offset.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    resets_checkpoint: bool

    @property
    def ratio(self) -> float:
        """Share of the bytes that are dirty, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Return whether the log needs cleaning by min.cleanable.dirty.ratio or max.compaction.lag.ms."""
        if not self.dirty_bytes:
            return False
        return self.overdue_ms > 0 or self.ratio > config.min_cleanable_dirty_ratio


def cleanable(log: LogFacts, config: LogConfig, now_ms: int) -> Cleanable:
    """Return the part of a log that can be cleaned now, which consists of whole segments.

    The part ends before the active segment, the last stable offset, and the first segment with a record younger than
    min.compaction.lag.ms.
    """
    first_dirty = log.log_start_offset if log.checkpoint is None else log.checkpoint
    resets = not log.log_start_offset <= first_dirty <= log.log_end_offset
    if resets:
        first_dirty = log.log_start_offset
    active = log.segments[-1]
    dirty = _inactive_from(log.segments, first_dirty)
    bound = min(log.last_stable_offset, active.base_offset)
    if config.min_compaction_lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp > now_ms - config.min_compaction_lag_ms:
                bound = min(bound, segment.base_offset)
                break
    inactive = _inactive_from(log.segments, max(first_dirty, bound))
    first_uncleanable = inactive[0].base_offset if inactive else active.base_offset
    overdue_ms = 0
    if config.max_compaction_lag_ms < NEVER_MS:
        timestamps = [timestamp for segment in dirty if (timestamp := segment.first_timestamp) > 0]
        overdue_ms = max(now_ms - config.max_compaction_lag_ms - min(timestamps), 0) if timestamps else 0
    return Cleanable(
        first_dirty,
        first_uncleanable,
        sum(segment.size for segment in log.segments if segment.base_offset < first_dirty),
        sum(segment.size for segment in dirty if segment.base_offset < first_uncleanable),
        overdue_ms,
        resets,
    )


def _inactive_from(segments: Segments, offset: int) -> Segments:
    """Return the segments from the one that contains `offset` on, without the active one."""
    if offset >= segments[-1].base_offset:
        return ()
    return segments[max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0) : -1]
