"""Retention: which segments of a log go, and why (UnifiedLog.deleteOldSegments).

In Kafka's order: the segment lies below the log start offset, the log is larger than retention.bytes, the segment is
older than retention.ms. Each goes on from the oldest up to the first that stays. With a cleanup.policy without `delete`
only the first counts; an empty one limits the local log where segments are copied to remote storage. A negative limit
is none. Where segments are copied to remote storage, the limits are those of local retention, and only what was copied
goes, or lies below the log start offset; the log still begins where it did.

An active segment is never copied. If it exceeds the local limits, it is rolled, so that it is copied and removed later
(KAFKA-16385). A segment with a timestamp in the future stays until then, and so do those after it. Where segments
are copied to remote storage, the time of its last modification counts instead (KAFKA-20609).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.log.read.local_log_dir import log_files

FAR_AHEAD_MS = 3_600_000
"""Default of message.timestamp.after.max.ms. A producer's clock that is less far ahead delays retention by less."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """The `count` oldest segments are to go. log_start_offset: where the log, remote storage included, begins without
    them; the caller moves there first, and where these are all makes an empty one before. rolls_active: the caller
    rolls the active segment, which exceeds the limits but has to be copied to remote storage first."""

    count: int
    log_start_offset: int
    rolls_active: bool = False


def segments_to_delete(
    segments: Sequence[LogSegment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
    highest_remote_offset: int = -1,
) -> Deletion:
    """The segments to delete now. segments: by base offset, the last one active. highest_remote_offset: the last one
    copied to remote storage, -1 for none. None goes that holds offsets at or above the high watermark, nor an active
    one that is empty. Raises OSError."""
    count = 0
    last = len(segments) - 1
    deletable = highest_remote_offset + 1 if config.copies_segments else log_end_offset
    retention_bytes, retention_ms = config.local_limits
    sizes = list(accumulate(segment.size for segment in reversed(segments)))[::-1]  # of each with those after it

    def upper_bound(slot: int) -> int:
        return segments[slot + 1].base_offset if slot < last else log_end_offset

    def is_below_start(slot: int) -> bool:
        return slot < last and upper_bound(slot) <= log_start_offset

    def is_surplus(slot: int) -> bool:
        return sizes[slot] - segments[slot].size >= retention_bytes

    def is_old(slot: int) -> bool:
        newest = segments[slot].largest_timestamp
        if newest > now_ms and config.copies_segments:
            newest = segments[slot].modified_ms
        return now_ms - newest > retention_ms

    reasons = [is_below_start]
    if config.limits_local_log:
        if retention_bytes >= 0:
            reasons.append(is_surplus)
        if retention_ms >= 0:
            reasons.append(is_old)
    rolls_active = False
    for goes in reasons:
        while count <= last and (count < last or segments[last].size):
            upper = upper_bound(count)
            if high_watermark < upper or not goes(count):
                break
            if not (upper <= deletable or is_below_start(count)):
                rolls_active = rolls_active or count == last
                break
            count += 1
    new_start = log_start_offset
    if count and not config.copies_segments:
        new_start = max(log_start_offset, upper_bound(count - 1))
    return Deletion(count, new_start, rolls_active)


def segment_from_future(segments: Sequence[LogSegment], config: LogConfig, now_ms: int) -> LogSegment | None:
    """The oldest segment, if a timestamp far in the future keeps retention by time from removing it and all others.
    None if nothing is kept. Raises OSError."""
    if config.copies_segments or not config.is_deleted or config.retention_ms < 0:
        return None
    oldest = segments[0]
    return oldest if oldest.size and oldest.largest_timestamp > now_ms + FAR_AHEAD_MS else None


def may_be_due(directory: Path, config: LogConfig, log_start_offset: int, now_ms: int) -> bool:
    """False when `segments_to_delete` would find none in a log that is not open, by its files alone. Raises OSError."""
    if config.remote_storage_enable:  # what was copied is known when it is open
        return True
    files = log_files(directory)
    sizes = [facts.st_size for facts in files.values()]
    segments = [  # the oldest decides; the second stands for all others
        LogSegment(directory, base, (size, MAX_INT64), now_ms)
        for base, size in zip(files, (*sizes[:1], sum(sizes[1:])), strict=False)
    ]
    deletion = segments_to_delete(
        segments, config, log_start_offset=log_start_offset, high_watermark=MAX_INT64, log_end_offset=MAX_INT64,
        now_ms=now_ms,
    )  # fmt: skip
    return deletion.count > 0
