"""Decisions of a report: from what was collected to what is shown, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafkalog_spark.format.names import is_internal
from kafkalog_spark.report.batch_totals import BatchTotals, PartitionTotal, merged_pairs
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


def summarized(collected: Collected) -> Facts:
    """Sums, and the largest of everything first."""
    partitions = sorted(
        (_partition(row, collected.totals.partitions) for row in collected.partitions),
        key=lambda partition: (-partition.size, partition.topic, partition.partition),
    )
    topics = _topics(partitions, collected)
    bins = {topic: of for topic, of in collected.totals.series.items() if len(of)}
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
        collected.paths, collected.cluster_ids, collected.made_at, topics, tuple(partitions),
        _timelines(partitions, collected.totals.partitions), span, tuple(rates), timed - shown, _producers(collected),
        collected.open_transactions, collected.groups, collected.lags, collected.topic_lags, collected.errors,
        collected.notes, collected.findings, collected.top_keys, written,
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


def _topics(partitions: list[PartitionFacts], collected: Collected) -> tuple[TopicFacts, ...]:
    by_topic: dict[str, list[PartitionFacts]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    made = []
    for topic, own in by_topic.items():
        codecs = [
            CodecFacts(topic, codec, of.batches, of.records, of.size, collected.ratios.get((topic, codec)))
            for (name, codec), of in collected.totals.codecs.items()
            if name == topic
        ]
        starts = [partition.first_timestamp for partition in own if partition.first_timestamp is not None]
        ends = [partition.last_timestamp for partition in own if partition.last_timestamp is not None]
        made.append(
            TopicFacts(
                topic=topic,
                internal=is_internal(topic),
                partitions=len(own),
                segments=sum(partition.segments for partition in own),
                size=sum(partition.size for partition in own),
                records=sum(partition.records for partition in own),
                batches=sum(of.batches for of in codecs),
                first_timestamp=min(starts, default=None),
                last_timestamp=max(ends, default=None),
                missing=sum(partition.missing for partition in own),
                longest_pause=max(
                    (partition.longest_pause for partition in own if partition.longest_pause is not None), default=None
                ),
                damaged_bytes=sum(partition.damaged_bytes for partition in own),
                codecs=tuple(sorted(codecs, key=lambda codec: -codec.size)),
            )
        )
    return tuple(sorted(made, key=lambda topic: (-topic.size, topic.topic)))


def _timelines(
    partitions: list[PartitionFacts], totals: Mapping[tuple[str, int], PartitionTotal]
) -> tuple[SegmentFacts, ...]:
    """Segments of the largest partitions, neighbours put together until they are few enough to draw."""
    lists: list[list[SegmentFacts]] = []
    for partition in partitions:
        segments = totals.get((partition.topic, partition.partition), PartitionTotal()).segments
        timed = [segment for segment in segments if segment.first_timestamp is not None]
        if timed and len(lists) < TIMELINES:
            lists.append(timed)
    while sum(map(len, lists)) > MOST_BARS:
        lists = [merged_pairs(segments) if len(segments) > 1 else segments for segments in lists]
    return tuple(segment for segments in lists for segment in segments)


def _producers(collected: Collected) -> tuple[ProducerFacts, ...]:
    made = [
        ProducerFacts(producer_id, collected.transactional_ids.get(producer_id), of.batches, of.records, of.size,
                      of.partitions, of.last_timestamp if of.last_timestamp >= 0 else None)
        for producer_id, of in collected.totals.producers.items()
    ]  # fmt: skip
    made.sort(key=lambda producer: (-producer.size, producer.producer_id))
    return tuple(made[:MOST_PRODUCERS])
