"""Facts that a report shows: which of the collected totals, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkalog_spark.format.names import is_internal
from kafkalog_spark.report import facts, time_bins
from kafkalog_spark.report.batch_totals import BatchTotals, known_extreme, merged_pairs

SLICES = 120  # points of a curve: two to four pixels each on a phone
TIMELINES = 24  # partitions with a timeline of their segments, the largest ones: what fits on a screen
MOST_BARS = 1200  # bars of all timelines together; 100 bytes each in the file


def rates(series: Mapping[str | None, time_bins.TimeBins]) -> dict[str, Any]:
    """The fields of Facts about rates, topics by size. Brings the series to one width."""
    bins = {topic: of for topic, of in series.items() if len(of)}
    widest = max((of.width_ms for of in bins.values()), default=1)  # widths are powers of two
    for of in bins.values():
        if of.width_ms < widest:
            of.widen(widest)
    span = time_bins.span_of(list(bins.values()))
    if span is None:
        return {"span": None, "rates": (), "outside": 0}
    made = []
    shown = 0
    for topic, of in sorted(bins.items(), key=lambda item: (item[0] is None, -int(item[1].sums[:, 0].sum()))):
        sums = time_bins.slices(of, span, SLICES)
        shown += int(sums[:, 1].sum())
        made.append(facts.RateSeries(topic, tuple(sums[:, 0].tolist()), tuple(sums[:, 1].tolist())))
    timed = sum(int(of.sums[:, 1].sum()) for of in bins.values())
    written = tuple(time_bins.written_ms(list(bins.values()), span, SLICES).tolist())
    return {"span": span, "rates": tuple(made), "outside": timed - shown, "written_ms": written}


def partitions_of(rows: Iterable[facts.Row], totals: BatchTotals) -> tuple[facts.PartitionTotal, ...]:
    """The partitions, the largest first. rows: of the table `partitions`."""
    made = []
    for row in rows:
        key = (row["topic"], row["partition"])
        total = totals.partitions.get(key, facts.PartitionTotal(*key))
        for name in _OF_TABLE:
            setattr(total, name, row[name])
        made.append(total)
    return tuple(sorted(made, key=lambda partition: (-partition.size, partition.topic, partition.partition)))


_OF_TABLE = ("segments", "size", "log_start_offset", "log_end_offset", "last_stable_offset")
_SUMMED = ("segments", "size", "records", "batches")


def topics_of(partitions: Iterable[facts.PartitionTotal], totals: BatchTotals) -> tuple[facts.TopicFacts, ...]:
    """The topics, the largest first."""
    by_topic: dict[str, list[facts.PartitionTotal]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    made = []
    for topic, own in by_topic.items():
        codecs = [of for of in totals.codecs.values() if of.topic == topic]
        made.append(
            facts.TopicFacts(
                topic=topic,
                internal=is_internal(topic),
                partitions=len(own),
                **{name: sum(getattr(partition, name) for partition in own) for name in _SUMMED},
                first_timestamp=known_extreme(min, (partition.first_timestamp for partition in own)),
                last_timestamp=known_extreme(max, (partition.last_timestamp for partition in own)),
                codecs=tuple(sorted(codecs, key=lambda codec: -codec.size)),
            )
        )
    return tuple(sorted(made, key=lambda topic: (-topic.size, topic.topic)))


def timelines(partitions: Iterable[facts.PartitionTotal]) -> tuple[facts.TimelineSegment, ...]:
    """Segments of the largest partitions, neighbours put together until they are few enough to draw."""
    lists: list[list[facts.TimelineSegment]] = []
    for partition in partitions:
        timed = [segment for segment in partition.timeline if segment.first_timestamp is not None]
        if timed and len(lists) < TIMELINES:
            lists.append(timed)
    while sum(map(len, lists)) > MOST_BARS:
        lists = [merged_pairs(segments) if len(segments) > 1 else segments for segments in lists]
    return tuple(segment for segments in lists for segment in segments)
