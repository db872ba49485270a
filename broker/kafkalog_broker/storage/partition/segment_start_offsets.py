"""Offset look-up of ListOffsets version 0, by the modification times of segments (Kafka: `legacyFetchOffsetsBefore`).

Messages of format v0 have no timestamps. The response therefore lists base offsets of segments and the log end offset.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.timestamp_lookup import EARLIEST, LATEST


class OffsetAndTime(NamedTuple):
    """Base offset of a segment, or the log end offset, with its modification time in ms."""

    offset: int
    modified_ms: int


def offsets_before(
    candidates: Sequence[OffsetAndTime], timestamp: int, max_offsets: int, high_watermark: int
) -> list[int]:
    """Return up to `max_offsets` offsets in descending order, from the newest candidate not later than `timestamp`.

    Offsets above the high watermark are replaced by it, because consumers must not see them.

    Args:
        candidates: By offset, from `segment_start_offsets`.
        timestamp: In ms; LATEST begins at the last candidate, EARLIEST at the first one.
    """
    if timestamp == LATEST:
        end = len(candidates)
    elif timestamp == EARLIEST:
        end = min(len(candidates), 1)
    else:
        slots = range(len(candidates), 0, -1)
        end = next((slot for slot in slots if candidates[slot - 1].modified_ms <= timestamp), 0)
    offsets = sorted((offset for offset, _ in candidates[max(end - max_offsets, 0) : end]), reverse=True)
    if offsets and offsets[0] > high_watermark:
        return [high_watermark, *(offset for offset in offsets if offset <= high_watermark)]
    return offsets


def segment_start_offsets(
    segments: Iterable[LogSegment], log_start_offset: int, log_end_offset: int, now_ms: int, *, with_times: bool
) -> list[OffsetAndTime]:
    """Return the start offsets of segments, and the log end offset unless the last segment is empty.

    A segment that is removed meanwhile is omitted.

    Args:
        with_times: Read the modification times of the files; this blocks. Otherwise the times are 0.

    Raises:
        OSError: If a file's modification time cannot be read.
    """
    starts: list[OffsetAndTime] = []
    for segment in segments:
        try:
            modified_ms = os.stat(segment.log_path).st_mtime_ns // 1_000_000 if with_times else 0
        except FileNotFoundError:
            continue
        starts.append(OffsetAndTime(max(segment.base_offset, log_start_offset), modified_ms))
    if not starts or starts[-1].offset < log_end_offset:
        starts.append(OffsetAndTime(log_end_offset, now_ms))
    return starts
