"""When a partition goes on in a new segment: a decision on plain values, and the defaults of the settings it depends
on."""

from __future__ import annotations

from kafkalog_spark.log.format.index_file import MAX_RELATIVE_OFFSET

SEGMENT_BYTES = 1 << 30
"""Kafka's default of segment.bytes."""

SEGMENT_MS = 7 * 24 * 3600 * 1000
"""Kafka's default of segment.ms."""

INDEX_INTERVAL_BYTES = 4096
"""Kafka's default of index.interval.bytes."""


def should_roll(
    *,
    size: int,
    base_offset: int,
    first_timestamp: int | None,
    created_ms: int,
    indexes_full: bool,
    incoming_size: int,
    incoming_last_offset: int,
    incoming_max_timestamp: int,
    now_ms: int,
    segment_bytes: int = SEGMENT_BYTES,
    segment_ms: int = SEGMENT_MS,
    jitter_ms: int = 0,
) -> bool:
    """Whether a batch must go into a new segment (LogSegment.shouldRoll). Times in ms, sizes in bytes.

    first_timestamp: largest timestamp of the segment's first batch; None while it is empty. The age of a segment is
    decided by timestamps of records, and by the clock only where they have none: old data rolls no faster than new.
    """
    if first_timestamp is not None and first_timestamp >= 0:
        waited = incoming_max_timestamp - first_timestamp
    else:
        waited = now_ms - created_ms
    return (
        size > segment_bytes - incoming_size
        or (size > 0 and waited > segment_ms - jitter_ms)
        or indexes_full
        or not 0 <= incoming_last_offset - base_offset <= MAX_RELATIVE_OFFSET
    )
