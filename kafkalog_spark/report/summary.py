"""Decisions of a report: from what was collected to what is shown, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafkalog_spark.format.names import is_internal
from kafkalog_spark.report.batch_totals import BatchTotals, PartitionTotal, halved
from kafkalog_spark.report.facts import (
    CodecFacts,
    Facts,
    FindingFacts,
    GroupFacts,
    LagFacts,
    OpenTransaction,
    PartitionFacts,
    ProducerFacts,
    RateSeries,
    SegmentFacts,
    TopicFacts,
    TopicLag,
    TopKeys,
    slices,
    span_of,
    written_ms,
)

SLICES = 120
"""Points of a curve: two to four pixels each on a phone."""
TIMELINES = 24
"""Partitions with a timeline of their segments, the largest ones: what fits on a screen."""
MOST_BARS = 1200
"""Bars of all timelines together; 100 bytes each in the file."""
MOST_PRODUCERS = 100
"""Producers that are listed, those with the most bytes."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Inputs of a summary. partitions: rows of that table; ratios: by topic and codec; the rest as in Facts."""

    paths: tuple[str, ...]
    cluster_ids: tuple[str, ...]
    made_at: int
    totals: BatchTotals
    partitions: list[dict[str, Any]]
    ratios: Mapping[tuple[str, str], float]
    transactional_ids: Mapping[int, str]
    open_transactions: tuple[OpenTransaction, ...]
    groups: tuple[GroupFacts, ...]
    lags: tuple[LagFacts, ...]
    topic_lags: tuple[TopicLag, ...]
    errors: int | None
    notes: int | None
    findings: tuple[FindingFacts, ...]
    top_keys: tuple[TopKeys, ...]


def summarized(found: Collected) -> Facts:
    """Sums, and the largest of everything first."""
    partitions = sorted(
        (_partition(row, found.totals.partitions) for row in found.partitions),
        key=lambda one: (-one.size, one.topic, one.partition),
    )
    topics = _topics(partitions, found)
    bins = {topic: of for topic, of in found.totals.series.items() if len(of)}
    widest = max((of.width_ms for of in bins.values()), default=1)  # widths are powers of two
    for of in bins.values():
        if of.width_ms < widest:
            of.widen(widest)
    span = span_of(list(bins.values()))
    written = () if span is None else tuple(written_ms(list(bins.values()), span, SLICES).tolist())
    rates = []
    shown = 0
    for topic, of in sorted(bins.items(), key=lambda item: (item[0] is None, -int(item[1].sums()[:, 0].sum()))):
        assert span is not None
        sums = slices(of, span, SLICES)
        shown += int(sums[:, 1].sum())
        rates.append(RateSeries(topic, tuple(sums[:, 0].tolist()), tuple(sums[:, 1].tolist())))
    timed = sum(int(of.sums()[:, 1].sum()) for of in bins.values())
    return Facts(
        found.paths, found.cluster_ids, found.made_at, topics, tuple(partitions),
        _timelines(partitions, found.totals.partitions), span, tuple(rates), timed - shown, _producers(found),
        found.open_transactions, found.groups, found.lags, found.topic_lags, found.errors, found.notes, found.findings,
        found.top_keys, written,
    )  # fmt: skip


def _partition(row: Mapping[str, Any], totals: Mapping[tuple[str, int], PartitionTotal]) -> PartitionFacts:
    total = totals.get((row["topic"], row["partition"]), PartitionTotal())
    return PartitionFacts(
        topic=row["topic"],
        partition=row["partition"],
        segments=row["segments"],
        size=row["size"],
        records=total.records,
        log_start_offset=row["log_start_offset"],
        log_end_offset=row["log_end_offset"],
        last_stable_offset=row["last_stable_offset"],
        first_timestamp=total.first_timestamp,
        last_timestamp=total.last_timestamp,
        missing=total.missing,
        longest_pause=total.longest_pause if total.longest_pause >= 0 else None,
        damaged_bytes=total.damaged_bytes,
        error=row["error"],
    )


def _topics(partitions: list[PartitionFacts], found: Collected) -> tuple[TopicFacts, ...]:
    by_topic: dict[str, list[PartitionFacts]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic, []).append(one)
    made = []
    for topic, own in by_topic.items():
        codecs = [
            CodecFacts(topic, codec, of.batches, of.records, of.size, found.ratios.get((topic, codec)))
            for (name, codec), of in found.totals.codecs.items()
            if name == topic
        ]
        starts = [one.first_timestamp for one in own if one.first_timestamp is not None]
        ends = [one.last_timestamp for one in own if one.last_timestamp is not None]
        made.append(
            TopicFacts(
                topic=topic,
                internal=is_internal(topic),
                partitions=len(own),
                segments=sum(one.segments for one in own),
                size=sum(one.size for one in own),
                records=sum(one.records for one in own),
                batches=sum(of.batches for of in codecs),
                first_timestamp=min(starts, default=None),
                last_timestamp=max(ends, default=None),
                missing=sum(one.missing for one in own),
                longest_pause=max((one.longest_pause for one in own if one.longest_pause is not None), default=None),
                damaged_bytes=sum(one.damaged_bytes for one in own),
                codecs=tuple(sorted(codecs, key=lambda codec: -codec.size)),
            )
        )
    return tuple(sorted(made, key=lambda topic: (-topic.size, topic.topic)))


def _timelines(
    partitions: list[PartitionFacts], totals: Mapping[tuple[str, int], PartitionTotal]
) -> tuple[SegmentFacts, ...]:
    """Segments of the largest partitions, neighbours put together until they are few enough to draw."""
    lists: list[list[SegmentFacts]] = []
    for one in partitions:
        segments = totals.get((one.topic, one.partition), PartitionTotal()).segments
        timed = [segment for segment in segments if segment.first_timestamp is not None]
        if timed and len(lists) < TIMELINES:
            lists.append(timed)
    while sum(map(len, lists)) > MOST_BARS:
        lists = [halved(segments) if len(segments) > 1 else segments for segments in lists]
    return tuple(segment for segments in lists for segment in segments)


def _producers(found: Collected) -> tuple[ProducerFacts, ...]:
    made = [
        ProducerFacts(producer_id, found.transactional_ids.get(producer_id), of.batches, of.records, of.size,
                      of.partitions, of.last_timestamp if of.last_timestamp >= 0 else None)
        for producer_id, of in found.totals.producers.items()
    ]  # fmt: skip
    made.sort(key=lambda producer: (-producer.size, producer.producer_id))
    return tuple(made[:MOST_PRODUCERS])
