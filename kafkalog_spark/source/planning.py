"""Plan of a batch read: the splits that its tasks read.

The log directories are listed, the bounds are resolved to offset ranges, and each range is cut into splits: between
segments, inside large segments, and as the options require.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.missing_segments import warn_of_missing_segments
from kafkalog_spark.log.read.segment_lookup import PositionHint
from kafkalog_spark.source.log_dir_listing import open_log_dirs
from kafkalog_spark.source.offset_range import OffsetRange, cut_range
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.partition_ranges import PartitionRange, resolve_ranges
from kafkalog_spark.source.range_calculator import split_ranges
from kafkalog_spark.source.read_locations import read_locations
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.segment_facts import Cut, SegmentFacts, facts_of_ranges
from kafkalog_spark.source.split import Split
from kafkalog_spark.source.store_requests import requests_logged
from kafkalog_spark.source.task_size import pack_size
from kafkalog_spark.source.topic_partitions import TopicPartition

_FEW_RECORDS_BYTES = 1 << 20
"""Assumed size in bytes of a split that reads a limited number of records: opening its files costs as much as reading
this many bytes."""


@dataclass(frozen=True)
class PlannedRange:
    """Resolved range of a partition, and its segments that may contain wanted records.

    Attributes:
        partition: The range and its log.
        segments: The segments, in order.
        start_hint: Position of the first offset; None if it is not known.
    """

    partition: PartitionRange
    segments: Sequence[SegmentFacts]
    start_hint: PositionHint | None = None


def plan(options: ReadOptions, row_filter: RowFilter) -> list[Split]:
    """Return the splits of a batch read. Raises as `plan_ranges`."""
    dirs = open_log_dirs(options)
    with requests_logged("planning", (root.store for root in dirs.roots)):
        partitions = plan_ranges(options, dirs, row_filter)
        if options.tail is not None:
            # The task of a range searches for its last records, so planning opens no segment.
            return [
                _split(partition, partition.range, size=_FEW_RECORDS_BYTES)
                for partition in partitions
                if partition.range.size > 0 or partition.range.end_is_latest or _may_report_damage(partition, options)
            ]
        return splits_of(plan_segments(partitions, options, row_filter), options, row_filter)


def plan_ranges(options: ReadOptions, dirs: LogDirs, row_filter: RowFilter) -> list[PartitionRange]:
    """Return the resolved ranges of a batch read, sorted by topic and partition. Warns of missing segments.

    Raises:
        UnknownPartition, NotALogDirectory: As `read_locations`.
        KafkalogError: As `resolve_ranges`.
    """
    read = read_locations(options, dirs, row_filter)
    ranges = resolve_ranges(options, read.locations, read.assigned)
    warn_of_missing_segments(each.log for each in ranges)
    return ranges


def plan_segments(
    partitions: Sequence[PartitionRange], options: ReadOptions, row_filter: RowFilter
) -> list[PlannedRange]:
    """Return the ranges with their segments."""
    facts = facts_of_ranges(partitions, options, row_filter)
    return [PlannedRange(partition, segments) for partition, segments in zip(partitions, facts, strict=True)]


def splits_of(planned: Sequence[PlannedRange], options: ReadOptions, row_filter: RowFilter) -> list[Split]:
    """Return the ranges cut into splits: between segments, inside large segments, and by the options."""
    pieces: list[OffsetRange] = []
    hints: dict[tuple[TopicPartition, int], PositionHint] = {}
    total = sum(segment.size for planned_range in planned for segment in planned_range.segments)
    piece_bytes = pack_size(total, options.max_partition_bytes)
    for planned_range in planned:
        tp = planned_range.partition.topic_partition
        narrowed = narrow(planned_range.partition.range, planned_range.segments, row_filter)
        if narrowed is None:
            continue
        if planned_range.start_hint is not None:
            hints[tp, narrowed.start] = planned_range.start_hint
        cuts = list(pack_segments(planned_range.segments, piece_bytes))
        hints.update({(tp, cut.offset): PositionHint(cut.base_offset, cut.position) for cut in cuts})
        pieces += cut_range(narrowed, [cut.offset for cut in cuts])
    ranges = split_ranges(
        pieces, min_partitions=options.min_partitions, max_records_per_partition=options.max_records_per_partition
    )
    ranges += [each.partition.range for each in planned if _may_report_damage(each.partition, options)]
    by_partition = {each.partition.topic_partition: each for each in planned}
    splits = []
    seen: set[TopicPartition] = set()
    for offsets in ranges:
        tp = offsets.topic_partition
        planned_range = by_partition[tp]
        size = _size_of(offsets, planned_range.segments)
        hint = hints.get((tp, offsets.start))
        splits.append(_split(planned_range.partition, offsets, hint, size=size, is_first=tp not in seen))
        seen.add(tp)
    return splits


def narrow(whole: OffsetRange, segments: Sequence[SegmentFacts], row_filter: RowFilter) -> OffsetRange | None:
    """Return `whole` without the offsets that the row filter certainly excludes, or None if none is left.

    A late-bound end stays: later records are filtered when they are read.
    """
    start = max(whole.start, row_filter.offset_from)
    end = min(whole.end, row_filter.offset_until)
    end_is_latest = whole.end_is_latest and row_filter.offset_until > whole.end
    if not segments:
        # No wanted record exists yet. Later records begin at the end of the log, whatever the filter's bounds are.
        start = end = whole.end
    else:
        start = max(start, segments[0].base_offset)
        if not end_is_latest:
            end = min(end, segments[-1].end_offset)
    if start >= end and not end_is_latest:
        return None
    return replace(
        whole,
        start=start,
        end=max(start, end),
        start_is_earliest=whole.start_is_earliest and start == whole.start,
        end_is_latest=end_is_latest,
    )


def pack_segments(segments: Iterable[SegmentFacts], piece_bytes: int) -> Iterator[Cut]:
    """Yield the cuts inside large segments, and cuts between segments so that each piece has about `piece_bytes`."""
    filled = 0
    for segment in segments:
        if filled and filled + segment.size > piece_bytes:
            yield Cut(segment.base_offset, segment.base_offset, 0)
            filled = 0
        if segment.cuts:
            yield from segment.cuts
            filled = piece_bytes  # the next segment begins a new piece
        else:
            filled += segment.size


def _split(
    partition: PartitionRange,
    offsets: OffsetRange,
    hint: PositionHint | None = None,
    *,
    size: int,
    is_first: bool = True,
) -> Split:
    """Return the split for a part of a partition's range."""
    log, fixed_end = partition.log, offsets.fixed_end
    searches_end = fixed_end is None or not log.is_before_last_segment(fixed_end)
    return Split(
        log.location_for(offsets.start, fixed_end),
        offsets,
        hint,
        known_end=log.log_end if searches_end else None,
        size=size,
        is_first=is_first,
    )


def _may_report_damage(partition: PartitionRange, options: ReadOptions) -> bool:
    """Return True if a range without offsets may still have rows, which report damage at the end of the log."""
    is_empty = partition.range.size <= 0 and not partition.range.end_is_latest
    return options.reports_damage and is_empty and partition.range.end >= partition.log.log_end_offset


def _size_of(part: OffsetRange, segments: Sequence[SegmentFacts]) -> int:
    """Estimate the bytes of a range: of each segment a share in proportion to its offsets."""
    size = 0
    first = max(bisect_right(segments, part.start, key=lambda segment: segment.base_offset) - 1, 0)
    for segment in islice(segments, first, None):
        if segment.base_offset >= part.end:
            break
        common_offsets = min(part.end, segment.end_offset) - max(part.start, segment.base_offset)
        if common_offsets > 0:
            size += segment.size * common_offsets // (segment.end_offset - segment.base_offset)
    return size
