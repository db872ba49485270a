"""Decision when a partition continues in a new segment (Kafka's LogSegment.shouldRoll), with default settings."""

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
    indexes_full: bool,
    segment_bytes: int = SEGMENT_BYTES,
    segment_ms: int = SEGMENT_MS,
) -> bool:
    """True if a batch must go into a new segment (LogSegment.shouldRoll). Times in ms, sizes in bytes.

    base_offset to indexes_full: of the segment. first_timestamp: largest timestamp of its first batch; None while it is
    empty. age_ms: since it was made. segment_ms: less the segment's jitter. The age of a segment is decided by
    timestamps of records, and by the clock only where they have none: old data rolls no faster than new.
    """
    if first_timestamp is not None and first_timestamp >= 0:
        age_ms = batch.max_timestamp - first_timestamp
    return (
        size > segment_bytes - batch.size
        or (size > 0 and age_ms > segment_ms)
        or indexes_full
        or not 0 <= batch.last_offset - base_offset <= MAX_RELATIVE_OFFSET
    )
