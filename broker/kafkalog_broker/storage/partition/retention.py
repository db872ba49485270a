"""Retention: choice of the segments to delete (Kafka: `UnifiedLog.deleteOldSegments`).

There are three reasons, checked in Kafka's order: the segment is below the log start offset; the log is larger than
retention.bytes; the segment is older than retention.ms. Each removes segments from the oldest up to the first one that
it does not apply to. A negative limit means no limit. If cleanup.policy lacks `delete`, only the first reason applies;
if the policy is empty and segments are copied to remote storage, the limits still apply to the local log.

Where segments are copied to remote storage, the limits are those of local retention. Only copied segments, and those
below the log start offset, are deleted then, and the log start offset does not move. An active segment is never copied.
If it exceeds the local limits it is rolled, so that it is copied and deleted later (KAFKA-16385).

A segment whose largest timestamp is in the future is kept until retention.ms after that time, and so are all segments
after it. Where segments are copied to remote storage, its modification time is used instead (KAFKA-20609).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.segment_lookup import SegmentEnd
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.log.read.local_log_dir import log_files

FAR_AHEAD_MS = 3_600_000
"""Default of message.timestamp.after.max.ms. A timestamp that is further in the future is logged, because it blocks
retention for that long."""


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """Segments to delete.

    Attributes:
        count: Number of oldest segments to delete. If it counts all segments, the caller first rolls the log, so that
            an active segment remains.
        log_start_offset: New log start offset, of the whole log and not only of its local part. The caller sets it
            before it deletes segments.
        rolls_active: The caller rolls the active segment, which exceeds the limits but must be copied first.
    """

    count: int
    log_start_offset: int
    rolls_active: bool = False


def plan_deletion(
    segments: Sequence[LogSegment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
    highest_remote_offset: int = -1,
) -> DeletionPlan:
    """Return which segments to delete now.

    Segments with offsets at or above the high watermark, and an empty active segment, are never deleted.

    Args:
        segments: By base offset, the last one active.
        highest_remote_offset: Last offset copied to remote storage, or -1.

    Raises:
        OSError: If a file cannot be read.
    """
    count = 0
    last = len(segments) - 1
    deletable = highest_remote_offset + 1 if config.copies_segments else log_end_offset
    retention_bytes, retention_ms = config.local_limits
    # Size of each segment together with all later ones.
    sizes = list(accumulate(segment.size for segment in reversed(segments)))[::-1]

    def upper_bound(index: int) -> int:
        return segments[index + 1].base_offset if index < last else log_end_offset

    def is_below_start(index: int) -> bool:
        return index < last and upper_bound(index) <= log_start_offset

    def exceeds_size(index: int) -> bool:
        return sizes[index] - segments[index].size >= retention_bytes

    def is_old(index: int) -> bool:
        newest = segments[index].largest_timestamp
        if newest > now_ms and config.copies_segments:
            newest = segments[index].modified_ms
        return now_ms - newest > retention_ms

    reasons = [is_below_start]
    if config.limits_local_log:
        if retention_bytes >= 0:
            reasons.append(exceeds_size)
        if retention_ms >= 0:
            reasons.append(is_old)
    rolls_active = False
    for applies in reasons:
        while count <= last and (count < last or segments[last].size):
            upper = upper_bound(count)
            if high_watermark < upper or not applies(count):
                break
            if not (upper <= deletable or is_below_start(count)):  # it is due, but not copied yet
                rolls_active = rolls_active or count == last
                break
            count += 1
    new_start = log_start_offset
    if count and not config.copies_segments:
        new_start = max(log_start_offset, upper_bound(count - 1))
    return DeletionPlan(count, new_start, rolls_active)


def segment_blocking_retention(segments: Sequence[LogSegment], config: LogConfig, now_ms: int) -> LogSegment | None:
    """Return the oldest segment if its timestamp is so far in the future that it blocks retention by time.

    Returns:
        None if retention by time is not blocked.

    Raises:
        OSError: If a file cannot be read.
    """
    if config.copies_segments or not config.deletes_by_retention or config.retention_ms < 0:
        return None
    oldest = segments[0]
    return oldest if oldest.size and oldest.largest_timestamp > now_ms + FAR_AHEAD_MS else None


def may_be_due(directory: Path, config: LogConfig, log_start_offset: int, now_ms: int) -> bool:
    """Return whether retention may delete segments of a log that is not open, judging by its files alone.

    Raises OSError.
    """
    if config.remote_storage_enable:  # which segments were copied is known only once the log is open
        return True
    files = log_files(directory)
    sizes = [stat.st_size for stat in files.values()]
    # Whether the oldest segment is deleted depends only on the total size of the others, so they count as one segment.
    segments = [
        LogSegment(directory, base, SegmentEnd(size, MAX_INT64), now_ms)
        for base, size in zip(files, (*sizes[:1], sum(sizes[1:])), strict=False)
    ]
    plan = plan_deletion(
        segments, config, log_start_offset=log_start_offset, high_watermark=MAX_INT64, log_end_offset=MAX_INT64,
        now_ms=now_ms,
    )  # fmt: skip
    return plan.count > 0
