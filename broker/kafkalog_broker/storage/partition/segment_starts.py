"""The offsets that ListOffsets 0 lists: where segments begin, and where the log ends, newest first
(Log.legacyFetchOffsetsBefore).

Before messages had timestamps this was how a consumer found a place by time: a segment counts as written when its file
was last modified.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from kafkalog_broker.storage.partition.log_segment import LogSegment

LATEST, EARLIEST = -1, -2

Place = tuple[int, int]
"""An offset, and from when on it counts (ms)."""


def listed_offsets(places: Sequence[Place], timestamp: int, most: int, high_watermark: int) -> list[int]:
    """At most `most` offsets, falling, from the newest one that was there at `timestamp` ms on; LATEST, EARLIEST: from
    the last, from the first one on.

    places: by offset. Consumers see no end above the high watermark, but that.
    """
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
    places = list(_starts(segments, log_start_offset, with_times=with_times))
    if not places or places[-1][0] < log_end_offset:
        places.append((log_end_offset, now_ms))
    return places


def _starts(segments: Iterable[LogSegment], log_start_offset: int, *, with_times: bool) -> Iterator[Place]:
    for segment in segments:
        try:
            modified_ms = os.stat(segment.log_path).st_mtime_ns // 1_000_000 if with_times else 0
        except FileNotFoundError:
            continue
        yield max(segment.base_offset, log_start_offset), modified_ms
