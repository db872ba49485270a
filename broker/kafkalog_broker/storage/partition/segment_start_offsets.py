"""ListOffsets version 0: base offsets of segments and the log end offset (Kafka's `legacyFetchOffsetsBefore`).

Messages of format v0 have no timestamps, so consumers of that time searched by the modification times of segments.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.offset_lookup import EARLIEST, LATEST

Place = tuple[int, int]  # an offset, and from when on it counts (ms)


def listed_offsets(places: Sequence[Place], timestamp: int, most: int, high_watermark: int) -> list[int]:
    """At most `most` offsets, falling, from the newest one that was there at `timestamp` ms on; LATEST, EARLIEST: from
    the last, from the first one on. places: by offset. Consumers see no end above the high watermark, but that."""
    if timestamp == LATEST:
        end = len(places)
    elif timestamp == EARLIEST:
        end = min(len(places), 1)
    else:
        end = next((slot for slot in range(len(places), 0, -1) if places[slot - 1][1] <= timestamp), 0)
    found = sorted((offset for offset, _ in places[max(end - most, 0) : end]), reverse=True)
    if found and found[0] > high_watermark:
        return [high_watermark, *(offset for offset in found if offset <= high_watermark)]
    return found


def segment_places(
    segments: Iterable[LogSegment], log_start_offset: int, log_end_offset: int, now_ms: int, *, with_times: bool
) -> list[Place]:
    """Where segments begin, and the log end offset when the last one holds something. with_times: the files are asked
    for theirs; for a thread. A segment that is removed meanwhile is left out. Raises OSError."""
    places: list[Place] = []
    for segment in segments:
        try:
            modified_ms = os.stat(segment.log_path).st_mtime_ns // 1_000_000 if with_times else 0
        except FileNotFoundError:
            continue
        places.append((max(segment.base_offset, log_start_offset), modified_ms))
    if not places or places[-1][0] < log_end_offset:
        places.append((log_end_offset, now_ms))
    return places
