"""Facts of a report: values only. Times are ms, None where nothing says them; sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Row = dict[str, Any]  # a row of a table of the log (docs/tables.md)

# The most frequent keys of a topic in bounded memory.

MOST_KEYS = 100_000  # keys that are counted at once: 20 MB with keys of 100 bytes
MOST_BYTES = 32_000_000  # bytes of the keys that are counted at once: keys may have as many as a batch has


@dataclass(frozen=True, slots=True)
class KeyCount:
    """key: None for records without one. records: at least so many. size: bytes of their values."""

    key: bytes | None
    records: int
    size: int


class KeyCounts:
    """Counts keys: exactly up to MOST_KEYS different ones of MOST_BYTES together, beyond that as Misra and Gries do: a
    count is too small by `missed` at most, and a key with more records than that is never lost."""

    def __init__(self, most: int = MOST_KEYS, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._counts: dict[bytes | None, tuple[int, int]] = {}
        self.records = 0
        self.missed = 0

    def add(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        sizes = pc.fill_null(pc.binary_length(values), 0)
        counted = pa.table({"key": keys, "size": sizes}).group_by("key").aggregate([([], "count_all"), ("size", "sum")])
        self.records += len(keys)
        columns = (counted[name].to_pylist() for name in ("key", "count_all", "size_sum"))
        for key, records, size in zip(*columns, strict=True):
            if key not in self._counts:
                self._bytes += len(key or b"")
            before_records, before_size = self._counts.get(key, (0, 0))
            self._counts[key] = (before_records + records, before_size + size)
        if len(self._counts) > self._most or self._bytes > self._most_bytes:
            self._shrink()

    def _shrink(self) -> None:
        """Subtract from all the count of the first key, by count, that does not fit into half of the room."""
        ordered = sorted(((of[0], len(key or b"")) for key, of in self._counts.items()), reverse=True)
        less = taken = 0
        for rank, (count, length) in enumerate(ordered):
            less, taken = count, taken + length
            if rank >= self._most // 2 or taken > self._most_bytes // 2:
                break
        self.missed += less
        self._counts = {
            key: (count - less, size - size * less // count)
            for key, (count, size) in self._counts.items()
            if count > less
        }
        self._bytes = sum(len(key or b"") for key in self._counts)

    def top(self, count: int) -> list[KeyCount]:
        """The most frequent ones first; by key where counts are equal."""
        rows = sorted(self._counts.items(), key=lambda item: (-item[1][0], item[0] or b""))
        return [KeyCount(key, records, size) for key, (records, size) in rows[:count]]


# Sums over time in bounded memory, whatever the times are.

MOST_BINS = 4096
"""Bins that are kept: a chart draws 120, and what is between them and the time of a record is not seen."""
_Ints = npt.NDArray[np.int64]


class TimeBins:
    """Sums in bins of equal width (ms, a power of two), which doubles with more than MOST_BINS that hold something: a
    wrong timestamp costs one bin and no precision. starts: int64[bins], ms; sums: int64[bins, 2]."""

    def __init__(self) -> None:
        self.width_ms = 1
        self.starts: _Ints = np.zeros(0, np.int64)
        self.sums: _Ints = np.zeros((0, 2), np.int64)

    def add(self, times_ms: _Ints, values: _Ints) -> None:
        """times_ms: int64[n]; values: int64[n, 2]."""
        self._group(np.concatenate([self.starts, times_ms]), np.concatenate([self.sums, values]))
        while len(self) > MOST_BINS:
            self.widen(self.width_ms * 2)

    def widen(self, width_ms: int) -> None:
        """width_ms: a multiple of the one that it has."""
        self.width_ms = width_ms
        self._group(self.starts, self.sums)

    def _group(self, times_ms: _Ints, values: _Ints) -> None:
        bins, which = np.unique(times_ms // self.width_ms, return_inverse=True)
        self.starts, self.sums = bins * self.width_ms, np.zeros((len(bins), 2), np.int64)
        np.add.at(self.sums, which, values)

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class Span:
    """Times [start, end) in ms that are drawn."""

    start: int
    end: int


_OUTSIDE = 0.001
"""Part of all bytes that may lie before the span, and after it, when their times are far away."""
_MINUTE_MS = 60_000
_FAR = 3  # times the length of the span without them


def span_of(bins: list[TimeBins]) -> Span | None:
    """The times that a chart draws, without a few outliers; None where there are none. First sums are weights."""
    if not any(map(len, bins)):
        return None
    times = np.concatenate([series.starts for series in bins])
    weights = np.concatenate([series.sums[:, 0] for series in bins])
    width = max(series.width_ms for series in bins)
    order = np.argsort(times, kind="stable")
    times, below = times[order], np.cumsum(weights[order])
    total = int(below[-1])
    first = int(times[np.searchsorted(below, total * _OUTSIDE, side="right")]) if total else int(times[0])
    last = int(times[np.searchsorted(below, total * (1 - _OUTSIDE))]) if total else int(times[-1])
    inner = last - first + width
    if int(times[-1]) - int(times[0]) + width <= _FAR * inner:
        first, last = int(times[0]), int(times[-1])
    return Span(first, last + width)


def slices(bins: TimeBins, span: Span, count: int) -> _Ints:
    """int64[count, 2]: the sums in `count` slices of the span; what lies outside is left out."""
    made = np.zeros((count, 2), np.int64)
    inside = (bins.starts >= span.start) & (bins.starts < span.end)
    np.add.at(made, (bins.starts[inside] - span.start) * count // (span.end - span.start), bins.sums[inside])
    return made


def written_ms(bins: list[TimeBins], span: Span, count: int) -> _Ints:
    """int64[count]: how long something was written in each of `count` slices of the span. Each minute (or bin, where
    these are wider) with a record counts, so that the rate of a busy hour is not one over the empty years around it."""
    width = max(max(series.width_ms for series in bins), _MINUTE_MS)
    starts = np.unique(np.concatenate([series.starts for series in bins]))
    since = starts[(starts >= span.start) & (starts < span.end)] - span.start
    length = span.end - span.start
    used, _ = np.unique(np.stack([since * count // length, since // width]), axis=1)
    return np.minimum(np.bincount(used, minlength=count) * width, -(-length // count))


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
