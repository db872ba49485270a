"""From the offset ranges of a read to its Spark tasks: which segments are opened, where large ones are cut.

    log directories -> assigned partitions -> offset ranges -> pieces (segments, batch boundaries) -> splits -> tasks

Decisions are made on `SegmentFacts`, which `segment_facts` reads from the files.
"""

from __future__ import annotations

import os
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.small_files import Checkpoints
from kafkalog_spark.source.assigned_places import open_log_dirs, places_to_read
from kafkalog_spark.source.bounds import LogView, OffsetRange, cut_range, resolve_bounds
from kafkalog_spark.source.filters import RowFilter
from kafkalog_spark.source.log_view import ends_before_last_segment, opened_view
from kafkalog_spark.source.offset_range_limit import TopicPartition
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.packing import pack_size, packed
from kafkalog_spark.source.parallel import for_each_place
from kafkalog_spark.source.range_calculator import split_ranges
from kafkalog_spark.source.request_log import requests_logged
from kafkalog_spark.source.segment_facts import Cut, SegmentFacts, segment_facts
from kafkalog_spark.source.subscription import assigned_partitions

_TAIL_BYTES = 1 << 20
"""What the last records of a partition are taken for when tasks are packed: opening its files costs as much."""


@dataclass(frozen=True)
class Split:
    """A range of offsets of one partition, which one Spark task reads, alone or with others.

    `hint`: (segment base offset, position) of its start. `known_end`: where the log ended, for a task that has to look
    for its end again. Both are checked before they are used. `topic_id`: of a stream, the topic that was planned.
    `size`: about how many bytes it has on disk. `is_first`: no other split of the read lies before it in its partition.
    """

    place: PartitionPlace
    range: OffsetRange
    hint: tuple[int, int] | None = None
    known_end: LogEnd | None = None
    topic_id: uuid.UUID | None = None
    size: int = 0
    is_first: bool = True

    @property
    def fixed_end(self) -> int | None:
        """The end of the range, None where it is late-bound."""
        return None if self.range.end_is_latest else self.range.end


def plan(options: ReadOptions, row_filter: RowFilter) -> list[Split]:
    """What a batch read has to read; `tasks_of` makes tasks of it.

    Raises what the bounds raise (OptionError, OffsetOutOfRange, DataLoss), UnknownPartition, NotALogDirectory,
    CorruptBatch where the end of a log cannot be distinguished from damage.
    """
    dirs = open_log_dirs(options)
    with requests_logged("planning", (root.store for root in dirs.roots)):
        return _plan(dirs, options, row_filter)


def _plan(dirs: LogDirs, options: ReadOptions, row_filter: RowFilter) -> list[Split]:
    ranges, places, logs = resolved_ranges(dirs, options, row_filter)
    if options.tail is not None:
        return _whole_splits(ranges, places, logs, options)
    facts = facts_of(ranges, places, logs, options, row_filter)
    return splits_of(ranges, facts, places, logs, options, row_filter)


class ResolvedRanges(NamedTuple):
    """What of each partition is asked for, where that is read, and the log that was opened there."""

    ranges: list[OffsetRange]
    places: dict[TopicPartition, PartitionPlace]
    logs: dict[TopicPartition, PartitionLog]


def resolved_ranges(dirs: LogDirs, options: ReadOptions, row_filter: RowFilter) -> ResolvedRanges:
    """The options' bounds in the log directories' partitions. Raises as `plan`."""
    assigned = assigned_partitions(options.subscription, dirs.places)
    logs: dict[TopicPartition, PartitionLog] = {}
    views: dict[TopicPartition, LogView] = {}
    # finding the end of a log of which nothing is wanted would be for nothing
    wanted = [tp for tp in assigned if not row_filter.keeps_nothing and row_filter.accepts_partition(*tp)]
    places = places_to_read(options, dirs, wanted)
    checkpoints = Checkpoints()
    opened = for_each_place(lambda place: opened_view(place, options, checkpoints=checkpoints), places.values())
    for tp, found in zip(places, opened, strict=True):
        if found is not None:
            logs[tp], views[tp] = found
    ranges = resolve_bounds(
        options.start,
        options.end,
        views,
        assigned=assigned,
        on_no_match=options.on_no_match,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    return ResolvedRanges(ranges, places, logs)


def facts_of(
    ranges: Iterable[OffsetRange],
    places: Mapping[TopicPartition, PartitionPlace],
    logs: Mapping[TopicPartition, PartitionLog],
    options: ReadOptions,
    row_filter: RowFilter,
) -> dict[TopicPartition, list[SegmentFacts]]:
    """Of each range the segments that it needs."""
    of_place = {places[r.topic_partition]: r for r in ranges}
    found_facts = for_each_place(
        lambda place: segment_facts(logs[place.topic, place.partition], of_place[place], row_filter, options), of_place
    )
    return dict(zip((r.topic_partition for r in of_place.values()), found_facts, strict=True))


def _whole_splits(
    ranges: Iterable[OffsetRange],
    places: Mapping[TopicPartition, PartitionPlace],
    logs: Mapping[TopicPartition, PartitionLog],
    options: ReadOptions,
) -> list[Split]:
    """Of option tail: the task of a range finds where its last records begin, so no segment is opened for that here."""
    splits = []
    for whole in ranges:
        tp = whole.topic_partition
        if whole.size > 0 or whole.end_is_latest or _is_about_damage(whole, logs[tp], options):
            split = Split(places[tp], whole, size=_TAIL_BYTES)
            split = replace(split, place=split.place.carrying(logs[tp], whole.start, split.fixed_end))
            splits.append(_with_known_end(split, logs[tp]))
    return splits


def splits_of(
    ranges: Iterable[OffsetRange],
    facts: Mapping[TopicPartition, list[SegmentFacts]],
    places: Mapping[TopicPartition, PartitionPlace],
    logs: Mapping[TopicPartition, PartitionLog],
    options: ReadOptions,
    row_filter: RowFilter,
    start_hints: Mapping[TopicPartition, tuple[int, int]] | None = None,
) -> list[Split]:
    """The ranges cut into pieces for tasks. `facts`: of each, the segments it needs; `start_hints`: where its first
    offset lies, where that is known."""
    pieces: list[OffsetRange] = []
    hints: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
    total = sum(segment.size for segments in facts.values() for segment in segments)
    pack = pack_size(total, options.max_partition_bytes)
    for whole in ranges:
        tp = whole.topic_partition
        segments = facts[tp]
        narrowed = narrow(whole, segments, row_filter)
        if narrowed is None:
            continue
        if start_hints is not None and tp in start_hints:
            hints[tp, narrowed.start] = start_hints[tp]
        cuts = list(pack_segments(segments, pack))
        hints.update({(tp, cut.offset): (cut.base_offset, cut.position) for cut in cuts})
        pieces += cut_range(narrowed, [cut.offset for cut in cuts])
    asked = split_ranges(
        pieces, min_partitions=options.min_partitions, max_records_per_partition=options.max_records_per_partition
    )
    asked += [whole for whole in ranges if _is_about_damage(whole, logs[whole.topic_partition], options)]
    splits = []
    begun: set[TopicPartition] = set()
    for part in asked:
        tp = part.topic_partition
        size = _size_of(part, facts[tp])
        split = Split(places[tp], part, hints.get((tp, part.start)), size=size, is_first=tp not in begun)
        begun.add(tp)
        split = replace(split, place=split.place.carrying(logs[tp], part.start, split.fixed_end))
        splits.append(_with_known_end(split, logs[tp]))
    return splits


def _is_about_damage(whole: OffsetRange, log: PartitionLog, options: ReadOptions) -> bool:
    """Whether a range that has no offset may have rows all the same: of damage where the log ends."""
    without_offset = whole.size <= 0 and not whole.end_is_latest
    return options.reports_damage and without_offset and whole.end >= log.log_end_offset


def tasks_of(splits: Sequence[Split], options: ReadOptions) -> list[tuple[Split, ...]]:
    """The splits of each task. Those of a partition stay in their order."""
    groups = packed(
        [split.size for split in splits],
        [split.range.size for split in splits],
        cores=cores(),
        max_partition_bytes=options.max_partition_bytes,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    return [tuple(splits[group]) for group in groups]


def cores() -> int:
    """Those that this process may run on: with a local master, those of the tasks too."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _size_of(part: OffsetRange, segments: Sequence[SegmentFacts]) -> int:
    """About how many bytes a range has: of each segment its share by offsets."""
    size = 0
    at = max(bisect_right(segments, part.start, key=lambda segment: segment.base_offset) - 1, 0)
    for segment in islice(segments, at, None):
        if segment.base_offset >= part.end:
            break
        inside = min(part.end, segment.end_offset) - max(part.start, segment.base_offset)
        if inside > 0:
            size += segment.size * inside // (segment.end_offset - segment.base_offset)
    return size


def _with_known_end(split: Split, log: PartitionLog) -> Split:
    """The split, with the end of the log where its task will look for that."""
    if split.fixed_end is not None and ends_before_last_segment(log, split.fixed_end):
        return split
    return replace(split, known_end=log.log_end)


def pack_segments(segments: Iterable[SegmentFacts], pack: int) -> Iterator[Cut]:
    """Where to cut: inside large segments at their own boundaries, between segments unless both sides are small."""
    filled = 0
    for segment in segments:
        if filled and filled + segment.size > pack:
            yield Cut(segment.base_offset, segment.base_offset, 0)
            filled = 0
        if segment.cuts:
            yield from segment.cuts
            filled = pack  # what follows begins a task of its own
        else:
            filled += segment.size


def narrow(whole: OffsetRange, segments: list[SegmentFacts], row_filter: RowFilter) -> OffsetRange | None:
    """`whole` without what the row filter excludes for sure; None when nothing of it can be wanted.

    A late-bound end stays: rows that come later are filtered when they are read.
    """
    start = max(whole.start, row_filter.offset_from)
    end = min(whole.end, row_filter.offset_until)
    still_late = whole.end_is_latest and row_filter.offset_until > whole.end
    if not segments:
        # nothing wanted yet; what comes later begins at the end of the log, wherever the filter does
        start = end = whole.end
    else:
        start = max(start, segments[0].base_offset)
        if not still_late:
            end = min(end, segments[-1].end_offset)
    if start >= end and not still_late:
        return None
    return replace(
        whole,
        start=start,
        end=max(start, end),
        start_is_earliest=whole.start_is_earliest and start == whole.start,
        end_is_latest=still_late,
    )
