"""Selects and orders the collected totals that a report shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkalog_spark.format.names import is_internal
from kafkalog_spark.report import facts, time_bins
from kafkalog_spark.report.batch_totals import BatchTotals, known_extreme, merged_pairs

SLICES = 120  # points of a curve, two to four pixels wide on a phone
TIMELINES = 24  # partitions with a timeline of their segments, the largest ones; they fit on a screen
MAX_TIMELINE_BARS = 1200  # bars of all timelines together; 100 bytes each in the file
_TABLE_COLUMNS = ("segments", "size", "log_start_offset", "log_end_offset", "last_stable_offset")
_SUMMED = ("segments", "size", "records", "batches")


def rates(series: Mapping[str | None, time_bins.TimeBins]) -> dict[str, Any]:
    """Return the fields of Facts about rates, by name, topics ordered by size. Changes all series to the same width."""
    bins = {topic: of for topic, of in series.items() if len(of)}
    widest = max((of.width_ms for of in bins.values()), default=1)  # widths are powers of two
    for of in bins.values():
        if of.width_ms < widest:
            of.widen(widest)
    span = time_bins.span_of(list(bins.values()))
    if span is None:
        return {"span": None, "rates": (), "outside": 0}
    result = []
    shown = 0
    for topic, of in sorted(bins.items(), key=lambda item: (item[0] is None, -int(item[1].sums[:, 0].sum()))):
        sums = time_bins.slices(of, span, SLICES)
        shown += int(sums[:, 1].sum())
        result.append(facts.RateSeries(topic, tuple(sums[:, 0].tolist()), tuple(sums[:, 1].tolist())))
    timed = sum(int(of.sums[:, 1].sum()) for of in bins.values())
    written = tuple(time_bins.written_ms(list(bins.values()), span, SLICES).tolist())
    return {"span": span, "rates": tuple(result), "outside": timed - shown, "written_ms": written}


def partitions_of(rows: Iterable[facts.Row], totals: BatchTotals) -> tuple[facts.PartitionTotal, ...]:
    """Return the totals of the partitions, given the rows of the table `partitions`; the largest first."""
    result = []
    for row in rows:
        key = (row["topic"], row["partition"])
        total = totals.partitions.get(key, facts.PartitionTotal(*key))
        for name in _TABLE_COLUMNS:
            setattr(total, name, row[name])
        result.append(total)
    return tuple(sorted(result, key=lambda partition: (-partition.size, partition.topic, partition.partition)))


def topics_of(partitions: Iterable[facts.PartitionTotal], totals: BatchTotals) -> tuple[facts.TopicFacts, ...]:
    """Return the totals of the topics, the largest first."""
    by_topic: dict[str, list[facts.PartitionTotal]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    result = []
    for topic, partitions_of_topic in by_topic.items():
        codecs = [codec for codec in totals.codecs.values() if codec.topic == topic]
        result.append(
            facts.TopicFacts(
                topic=topic,
                is_internal=is_internal(topic),
                partitions=len(partitions_of_topic),
                **{name: sum(getattr(partition, name) for partition in partitions_of_topic) for name in _SUMMED},
                first_timestamp=known_extreme(min, (partition.first_timestamp for partition in partitions_of_topic)),
                last_timestamp=known_extreme(max, (partition.last_timestamp for partition in partitions_of_topic)),
                codecs=tuple(sorted(codecs, key=lambda codec: -codec.size)),
            )
        )
    return tuple(sorted(result, key=lambda topic: (-topic.size, topic.topic)))


def timelines(partitions: Iterable[facts.PartitionTotal]) -> tuple[facts.TimelineSegment, ...]:
    """Return the segments of the largest partitions. Neighbours are merged down to MAX_TIMELINE_BARS."""
    lists: list[list[facts.TimelineSegment]] = []
    for partition in partitions:
        timed = [segment for segment in partition.timeline if segment.first_timestamp is not None]
        if timed and len(lists) < TIMELINES:
            lists.append(timed)
    while sum(map(len, lists)) > MAX_TIMELINE_BARS:
        lists = [merged_pairs(segments) if len(segments) > 1 else segments for segments in lists]
    return tuple(segment for segments in lists for segment in segments)
