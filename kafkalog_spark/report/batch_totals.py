"""Totals over the rows of the table batches, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.report import facts, time_bins

COLUMNS = (
    "topic", "partition", "segment", "position", "size", "base_offset", "last_offset", "record_count", "codec",
    "base_timestamp", "max_timestamp", "producer_id", "transactional", "valid",
)  # fmt: skip
"""Columns of the table `batches` that the totals need."""
MAX_SEGMENTS = 64  # bars of one partition in a timeline; with more segments, neighbours are merged
MAX_PRODUCERS = 10_000  # producer IDs that are counted; with more, those with the fewest bytes are dropped
_NONE = -1  # no timestamp, in int64 columns here
Ints = npt.NDArray[np.int64]


class BatchTotals:
    """Totals of all batches that were added.

    Args:
        shown: Topics that have a time series of their own.
    """

    def __init__(self, shown: tuple[str, ...]) -> None:
        self.partitions: dict[tuple[str, int], facts.PartitionTotal] = {}
        self.codecs: dict[tuple[str, str], facts.CodecTotal] = {}
        self.producers: dict[int, facts.ProducerTotal] = {}
        self.series: dict[str | None, time_bins.TimeBins] = {topic: time_bins.TimeBins() for topic in shown}

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of one segment. Segments are added partition by partition, in the order of the log."""
        key = (rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py())
        total = self.partitions.setdefault(key, facts.PartitionTotal(*key))
        valid = rows.column("valid")
        if valid.false_count:
            damaged = rows.filter(pc.invert(valid))
            total.damaged_bytes += pc.sum(damaged.column("size")).as_py()
            total.next_offset = None  # damaged offsets do not count as missing
            rows = rows.filter(valid)
            if not rows.num_rows:
                return
        segment = rows.column("segment")[0].as_py()
        columns = _Columns.of(rows, segment if not total.batches else total.next_offset)
        self._count(total, columns, segment)
        self._count_codecs(key, segment, rows, columns)
        self._count_producers(key, rows, columns)
        timed = columns.last_times != _NONE
        if timed.any():
            series = self.series.setdefault(key[0] if key[0] in self.series else None, time_bins.TimeBins())
            series.add(columns.last_times[timed], np.stack([columns.sizes[timed], columns.records[timed]], 1))

    def _count(self, total: facts.PartitionTotal, columns: _Columns, segment: int) -> None:
        total.records += int(columns.records.sum())
        total.batches += len(columns.sizes)
        expected = np.concatenate(
            [[columns.bases[0] if total.next_offset is None else total.next_offset], columns.nexts]
        )
        between = np.maximum(columns.bases - expected[:-1], 0)
        total.missing += int(between.sum() + (columns.nexts - columns.bases - columns.records).sum())
        total.next_offset = int(columns.nexts[-1])
        total.is_transactional |= columns.is_transactional
        firsts = columns.first_times[columns.first_times != _NONE]
        times = columns.last_times[columns.last_times != _NONE]
        if len(times):
            ends = times if total.last_timestamp is None else np.concatenate([[total.last_timestamp], times])
            if len(ends) > 1:
                pause = int(np.diff(np.maximum.accumulate(ends)).max())
                total.longest_pause = max(total.longest_pause or 0, pause)
            total.first_timestamp = known_extreme(
                min, (total.first_timestamp, int(np.concatenate([firsts, times]).min()))
            )
            total.last_timestamp = int(ends.max())
        timeline_segment = facts.TimelineSegment(
            total.topic,
            total.partition,
            segment,
            int(columns.nexts[-1]),
            int(columns.sizes.sum()),
            int(min(firsts.min(), times.min())) if len(firsts) and len(times) else None,
            int(times.max()) if len(times) else None,
        )
        timeline = total.timeline
        if total.last_segment == segment:
            timeline[-1] = _merged(timeline[-1], timeline_segment, timeline[-1].segments)
        else:
            timeline.append(timeline_segment)
        total.last_segment = segment
        if len(timeline) > 2 * MAX_SEGMENTS:
            total.timeline = merged_pairs(timeline)

    def _count_codecs(self, key: tuple[str, int], segment: int, rows: pa.RecordBatch, columns: _Columns) -> None:
        codecs_of_rows = rows.column("codec").dictionary_encode()
        indices = codecs_of_rows.indices.to_numpy(zero_copy_only=False)
        positions = rows.column("position").to_numpy(zero_copy_only=False)
        for index, codec in enumerate(codecs_of_rows.dictionary.to_pylist()):
            has_codec = indices == index
            total = self.codecs.setdefault((key[0], codec), facts.CodecTotal(key[0], codec))
            total.add(key[1], segment, positions[has_codec], columns.sizes[has_codec], columns.records[has_codec])

    def _count_producers(self, key: tuple[str, int], rows: pa.RecordBatch, columns: _Columns) -> None:
        ids, id_of_row = np.unique(rows.column("producer_id").to_numpy(zero_copy_only=False), return_inverse=True)
        sums = np.zeros((len(ids), 3), np.int64)
        np.add.at(sums, id_of_row, np.stack([np.ones_like(columns.sizes), columns.records, columns.sizes], 1))
        last_times = np.full(len(ids), _NONE, np.int64)
        np.maximum.at(last_times, id_of_row, columns.last_times)
        for at, producer_id in enumerate(ids.tolist()):
            total = self.producers.setdefault(producer_id, facts.ProducerTotal(producer_id))
            batches, records, size = sums[at].tolist()
            total.batches += batches
            total.records += records
            total.size += size
            if last_times[at] != _NONE:
                total.last_timestamp = max(total.last_timestamp or 0, int(last_times[at]))
            if total.last_partition != key:
                total.last_partition, total.partitions = key, total.partitions + 1
        if len(self.producers) > 2 * MAX_PRODUCERS:
            ordered = sorted(self.producers.items(), key=lambda item: item[1].size, reverse=True)
            self.producers = dict(ordered[:MAX_PRODUCERS])


def known_extreme(extreme: Callable[..., int | None], times: Iterable[int | None]) -> int | None:
    """Return the earliest or latest of the known times, as `extreme` is min or max; None if none is known."""
    return extreme((time for time in times if time is not None), default=None)


def merged_pairs(segments: list[facts.TimelineSegment]) -> list[facts.TimelineSegment]:
    """Return half as many segments, by merging each two neighbours."""
    pairs = zip(segments[::2], segments[1::2], strict=False)
    merged = [_merged(first, second, first.segments + second.segments) for first, second in pairs]
    return merged + segments[len(merged) * 2 :]


class _Columns(NamedTuple):
    """Columns of valid batches, int64[n] each.

    Attributes:
        bases: Base offsets.
        nexts: Last offsets plus 1.
        records: Numbers of records.
        first_times: First timestamps in ms, or _NONE.
        last_times: Largest timestamps in ms, or _NONE.
        is_transactional: True if any batch is transactional.
    """

    sizes: Ints
    bases: Ints
    nexts: Ints
    records: Ints
    first_times: Ints
    last_times: Ints
    is_transactional: bool

    @classmethod
    def of(cls, rows: pa.RecordBatch, next_offset: int | None) -> _Columns:
        """Return the columns of valid batches.

        A wrapper (magic 0 and 1) has no base offset: it counts as holding all offsets since the batch before it.
        """
        nexts = _ints(rows.column("last_offset"), 0) + 1
        before = np.concatenate([[nexts[0] - 1 if next_offset is None else next_offset], nexts[:-1]])
        bases = _ints(rows.column("base_offset"), _NONE)
        counts = _ints(rows.column("record_count"), _NONE)
        is_wrapper = counts == _NONE
        bases = np.where(is_wrapper, np.minimum(before, nexts - 1), bases)
        records = np.where(is_wrapper, nexts - bases, counts)
        return cls(
            _ints(rows.column("size"), 0),
            bases,
            nexts,
            records,
            _ms(rows.column("base_timestamp")),
            _ms(rows.column("max_timestamp")),
            bool(pc.any(rows.column("transactional")).as_py()),
        )


def _ints(column: pa.Array, missing: int) -> Ints:
    filled: Ints = pc.fill_null(column, missing).to_numpy(zero_copy_only=False).astype(np.int64)
    return filled


def _ms(column: pa.Array) -> Ints:
    """Return timestamps in ms. Those before 1970 are not real times and become _NONE."""
    ms = _ints(column.cast(pa.int64()), -1000) // 1000
    return np.where(ms < 0, _NONE, ms)


def _merged(first: facts.TimelineSegment, second: facts.TimelineSegment, segments: int) -> facts.TimelineSegment:
    return replace(
        first,
        end_offset=max(first.end_offset, second.end_offset),
        size=first.size + second.size,
        first_timestamp=known_extreme(min, (first.first_timestamp, second.first_timestamp)),
        last_timestamp=known_extreme(max, (first.last_timestamp, second.last_timestamp)),
        segments=segments,
    )
