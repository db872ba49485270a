"""Facts of a report, values only. Times are in ms, None if unknown; sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkalog_spark.report.key_counts import KeyCount
from kafkalog_spark.report.time_bins import Ints, Span

Row = dict[str, Any]
"""Row of a metadata table (docs/tables.md)."""
MAX_SAMPLES = 8  # batches of a topic and codec that are decompressed, spread over its log


class Sample(NamedTuple):
    """Position of a batch in a topic."""

    partition: int
    segment: int
    position: int


@dataclass(slots=True)
class CodecTotal:
    """Totals of the batches of a topic with one codec.

    Attributes:
        samples: Some of the batches, evenly spread.
        stride: Distance of two samples, in batches.
        ratio: Decompressed bytes of the samples' records per byte in the file; None for codec none, and if no sample
            can be decompressed.
    """

    topic: str
    codec: str
    batches: int = 0
    records: int = 0
    size: int = 0
    samples: list[Sample] = field(default_factory=list)
    stride: int = 1
    ratio: float | None = None

    def add(self, partition: int, segment: int, positions: Ints, sizes: Ints, records: Ints) -> None:
        """Add batches of a segment, in the order of the log."""
        while (self.batches + len(sizes) + self.stride - 1) // self.stride > MAX_SAMPLES:
            self.samples, self.stride = self.samples[::2], self.stride * 2
        first = -self.batches % self.stride
        self.samples += [Sample(partition, segment, at) for at in positions[first :: self.stride].tolist()]
        self.batches += len(sizes)
        self.size += int(sizes.sum())
        self.records += int(records.sum())


@dataclass(frozen=True, slots=True)
class TimelineSegment:
    """A segment, or several merged neighbours (`segments` is their number)."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    size: int
    first_timestamp: int | None
    last_timestamp: int | None
    segments: int = 1


@dataclass(slots=True)
class PartitionTotal:
    """Totals of a partition.

    Attributes:
        missing: Offsets between start and end without a record, because of compaction, damage or transactions.
        longest_pause: Longest time between two batches in ms.
        timeline: Segments for the chart.
        segments: Number of segments; like size and the offsets, a value of the table `partitions`.
    """

    topic: str
    partition: int
    records: int = 0
    batches: int = 0
    missing: int = 0
    damaged_bytes: int = 0
    longest_pause: int | None = None
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    is_transactional: bool = False
    next_offset: int | None = None
    timeline: list[TimelineSegment] = field(default_factory=list)
    last_segment: int | None = None
    segments: int = 0
    size: int = 0
    log_start_offset: int = 0
    log_end_offset: int = 0
    last_stable_offset: int | None = None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Totals of a topic. `codecs` are ordered by size."""

    topic: str
    is_internal: bool
    partitions: int
    segments: int
    size: int
    records: int
    batches: int
    first_timestamp: int | None
    last_timestamp: int | None
    codecs: tuple[CodecTotal, ...]


@dataclass(frozen=True, slots=True)
class RateSeries:
    """Sums of a topic by slice of the span. `topic` is None for all topics without a series of their own."""

    topic: str | None
    bytes: tuple[int, ...]
    records: tuple[int, ...]


@dataclass(slots=True)
class ProducerTotal:
    """Totals of a producer.

    Attributes:
        producer_id: -1 for batches without a producer ID.
        transactional_id: None if no transaction coordinator's log has it.
    """

    producer_id: int
    transactional_id: str | None = None
    batches: int = 0
    records: int = 0
    size: int = 0
    last_timestamp: int | None = None
    partitions: int = 0
    last_partition: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class TopicLag:
    """Lag of a group over all partitions of a topic. `topic` is None for the sum of the topics not shown alone."""

    group_id: str
    topic: str | None
    lag: int


@dataclass(frozen=True, slots=True)
class TopKeys:
    """Most frequent keys of a topic.

    Attributes:
        missed: Largest error of a count; counts are never too large.
        unread: Errors of the parts of the log that could not be read.
    """

    topic: str
    records: int
    missed: int
    keys: tuple[KeyCount, ...]
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts of a report.

    Attributes:
        span: Time range of the rates; None if no record has a timestamp.
        outside: Number of records whose timestamps are far outside of the span.
        open_transactions: Rows of the table `transactions`.
        groups: Rows of the table `groups`.
        lags: Rows of the table `consumer_offsets` with the largest lags.
        topic_lags: Sums over all committed offsets.
        errors: Number of errors of the check; None if it was not run.
        notes: Number of notes of the check; None if it was not run.
        findings: Rows of the table `findings`.
        written_ms: Time in which records were written, by slice of the rates.
    """

    paths: tuple[str, ...]
    cluster_ids: tuple[str, ...]
    made_at: int
    topics: tuple[TopicFacts, ...]
    partitions: tuple[PartitionTotal, ...]
    segments: tuple[TimelineSegment, ...]
    span: Span | None
    rates: tuple[RateSeries, ...]
    outside: int
    producers: tuple[ProducerTotal, ...]
    open_transactions: tuple[Row, ...]
    groups: tuple[Row, ...]
    lags: tuple[Row, ...]
    topic_lags: tuple[TopicLag, ...]
    errors: int | None
    notes: int | None
    findings: tuple[Row, ...] = ()
    top_keys: tuple[TopKeys, ...] = ()
    written_ms: tuple[int, ...] = ()
