"""Facts of a report: values only. Times are ms, None where nothing says them; sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkalog_spark.report.key_counts import KeyCount
from kafkalog_spark.report.time_bins import Span, _Ints

Row = dict[str, Any]  # a row of a table of the log (docs/tables.md)


MOST_SAMPLES = 8  # batches of a topic and codec that are decompressed, spread over its log


class Sample(NamedTuple):
    """Where a batch lies."""

    partition: int
    segment: int
    position: int


@dataclass(slots=True)
class CodecTotal:
    """Batches of a topic with one codec. samples: some of them, evenly spread. ratio: bytes of records decompressed to
    those in the file, of the samples; None for codec none, and where none of them decompresses."""

    topic: str
    codec: str
    batches: int = 0
    records: int = 0
    size: int = 0
    samples: list[Sample] = field(default_factory=list)
    stride: int = 1
    ratio: float | None = None

    def take(self, partition: int, segment: int, positions: _Ints, sizes: _Ints, records: _Ints) -> None:
        while (self.batches + len(sizes) + self.stride - 1) // self.stride > MOST_SAMPLES:
            self.samples, self.stride = self.samples[::2], self.stride * 2
        first = -self.batches % self.stride
        self.samples += [Sample(partition, segment, at) for at in positions[first :: self.stride].tolist()]
        self.batches += len(sizes)
        self.size += int(sizes.sum())
        self.records += int(records.sum())


@dataclass(frozen=True, slots=True)
class TimelineSegment:
    """A segment, or neighbours put together (`segments` of them)."""

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
    """missing: offsets between start and end without a record (compaction, damage, and what transactions left out).
    longest_pause: between two batches, ms. segments, size and the offsets: of the table `partitions`."""

    topic: str
    partition: int
    records: int = 0
    batches: int = 0
    missing: int = 0
    damaged_bytes: int = 0
    longest_pause: int | None = None
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    transactional: bool = False
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
    """Sums over its partitions. codecs: by size."""

    topic: str
    internal: bool
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
    """A topic's share of each slice of the span. topic: None for all that are not shown alone."""

    topic: str | None
    bytes: tuple[int, ...]
    records: tuple[int, ...]


@dataclass(slots=True)
class ProducerTotal:
    """producer_id: -1 for batches without. transactional_id: where a coordinator's log tells it."""

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
    """The lag of a group in one topic, over all its partitions. topic: None for all that are not shown alone."""

    group_id: str
    topic: str | None
    lag: int


@dataclass(frozen=True, slots=True)
class TopKeys:
    """The most frequent keys of a topic. missed: how much a count may lack. unread: why stretches are not counted."""

    topic: str
    records: int
    missed: int
    keys: tuple[KeyCount, ...]
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """span: the time that rates are of; None where no record has a timestamp. outside: records whose timestamps lie far
    outside of it. open_transactions, groups, lags (the largest), findings: rows of the tables `transactions`, `groups`,
    `consumer_offsets` and `findings`. topic_lags: sums of all. errors, notes: of the check; None where it was not run.
    written_ms: of each slice of the rates, how long something was written in it."""

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
