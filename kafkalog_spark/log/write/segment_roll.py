"""Decision whether a partition rolls to a new segment, and Kafka's default settings for it."""

from __future__ import annotations

from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET

SEGMENT_BYTES = 1 << 30  # Kafka's default of segment.bytes
SEGMENT_MS = 7 * 24 * 3600 * 1000  # Kafka's default of segment.ms
INDEX_INTERVAL_BYTES = 4096  # Kafka's default of index.interval.bytes


def should_roll(
    batch: BatchHeader,
    *,
    base_offset: int,
    size: int,
    first_timestamp: int | None,
    age_ms: int,
    are_indexes_full: bool,
    segment_bytes: int = SEGMENT_BYTES,
    segment_ms: int = SEGMENT_MS,
) -> bool:
    """Return True if the next batch must go into a new segment (Kafka: LogSegment.shouldRoll).

    The age of a segment is the difference between record timestamps. The clock decides only if the records have no
    timestamps, so old data does not roll faster than new data.

    Args:
        batch: Header of the next batch.
        base_offset: Base offset of the active segment.
        size: Size of the active segment in bytes.
        first_timestamp: Largest timestamp of its first batch in ms, or None if the segment is empty.
        age_ms: Time since the segment was created, by the clock.
        are_indexes_full: True if an index of the segment has no room for another entry.
        segment_bytes: segment.bytes.
        segment_ms: segment.ms, minus the jitter of the segment.
    """
    if first_timestamp is not None and first_timestamp >= 0:
        age_ms = batch.max_timestamp - first_timestamp
    return (
        size > segment_bytes - batch.size
        or (size > 0 and age_ms > segment_ms)
        or are_indexes_full
        or not 0 <= batch.last_offset - base_offset <= MAX_RELATIVE_OFFSET
    )
