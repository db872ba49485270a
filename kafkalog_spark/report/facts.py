"""What a report says of log directories: values only, in the order in which they are shown. Times are ms, None where
nothing says them; sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkalog_spark.report.key_counts import KeyCount
from kafkalog_spark.report.time_bins import Span


@dataclass(frozen=True, slots=True)
class CodecFacts:
    """Batches of a topic with one codec. ratio: bytes of records decompressed to those in the file, of the batches that
    were looked into; None for codec none, and where none of them decompresses."""

    topic: str
    codec: str
    batches: int
    records: int
    size: int
    ratio: float | None


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment, or neighbours put together (`segments` of them)."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    size: int
    first_timestamp: int | None
    last_timestamp: int | None
    segments: int = 1


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """missing: offsets between start and end without a record (compaction, damage, and what transactions left out).
    longest_pause: between two batches, ms. error: the first damage."""

    topic: str
    partition: int
    segments: int
    size: int
    records: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int | None
    first_timestamp: int | None
    last_timestamp: int | None
    missing: int
    longest_pause: int | None
    damaged_bytes: int
    error: str | None


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
    missing: int
    longest_pause: int | None
    damaged_bytes: int
    codecs: tuple[CodecFacts, ...]


@dataclass(frozen=True, slots=True)
class RateSeries:
    """A topic's share of each slice of the span. topic: None for all that are not shown alone."""

    topic: str | None
    bytes: tuple[int, ...]
    records: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProducerFacts:
    """producer_id: -1 for batches without. transactional_id: where a coordinator's log tells it."""

    producer_id: int
    transactional_id: str | None
    batches: int
    records: int
    size: int
    partitions: int
    last_timestamp: int | None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without its end. state: open, hanging."""

    topic: str
    partition: int
    producer_id: int
    transactional_id: str | None
    state: str
    first_offset: int
    records: int
    started_at: int | None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A consumer group. lag: None where these directories hold none of its partitions."""

    group_id: str
    kind: str | None
    members: int | None
    partitions: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class LagFacts:
    """One committed offset."""

    group_id: str
    topic: str
    partition: int
    offset: int
    log_end_offset: int | None
    lag: int | None
    committed_at: int | None


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The lag of a group in one topic, over all its partitions. topic: None for all that are not shown alone."""

    group_id: str
    topic: str | None
    lag: int


@dataclass(frozen=True, slots=True)
class FindingFacts:
    """What kafkalog-check says."""

    severity: str
    topic_partition: str | None
    path: str
    position: int | None
    offset: int | None
    what: str


@dataclass(frozen=True, slots=True)
class TopKeys:
    """The most frequent keys of a topic. distinct: how many there are; None where they were too many to count.
    missed: by how much a count may be too small. unread: why records are not counted, of each stretch that cannot be
    read."""

    topic: str
    records: int
    missed: int
    keys: tuple[KeyCount, ...]
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything. span: the time that rates are of; None where no record has a timestamp. outside: records whose
    timestamps lie far from all others, and so outside of it. lags: the largest; topic_lags: sums of all.
    errors, notes: of the check; None where it was not run.
    """

    paths: tuple[str, ...]
    cluster_ids: tuple[str, ...]
    made_at: int
    topics: tuple[TopicFacts, ...]
    partitions: tuple[PartitionFacts, ...]
    segments: tuple[SegmentFacts, ...]
    span: Span | None
    rates: tuple[RateSeries, ...]
    outside: int
    producers: tuple[ProducerFacts, ...]
    open_transactions: tuple[OpenTransaction, ...]
    groups: tuple[GroupFacts, ...]
    lags: tuple[LagFacts, ...]
    topic_lags: tuple[TopicLag, ...]
    errors: int | None
    notes: int | None
    findings: tuple[FindingFacts, ...] = ()
    top_keys: tuple[TopKeys, ...] = field(default=())

    @property
    def size(self) -> int:
        """Bytes of all .log files."""
        return sum(topic.size for topic in self.topics)

    @property
    def records(self) -> int:
        """Records, control records too."""
        return sum(topic.records for topic in self.topics)
