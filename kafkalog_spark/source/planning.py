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

from kafkalog_spark.errors import CorruptBatch, OptionError, UnsupportedFormat
from kafkalog_spark.log.read.batch_search import LogEnd, position_for_timestamp
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.source.filters import RowFilter
from kafkalog_spark.source.offsets import TopicPartition
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.partition_bounds import (
    OffsetRange,
    PartitionRange,
    cut_range,
    ends_before_last_segment,
    open_log_dirs,
    partition_ranges,
    requests_logged,
    split_ranges,
)
from kafkalog_spark.store.parallel import in_parallel

SMALL_SPLIT = 8 << 20
"""Bytes. What is smaller shares a task with its neighbours. A task whose worker has to be started costs about 1 s, and
reading this much 30 ms in large record batches, 0.5 s as 500 partitions (OPEN_COST)."""
TASKS_WISHED = 64
"""A read of many small pieces is packed into about so many tasks: enough for the cores of most clusters."""
OPEN_COST = 16 << 10
"""Bytes that opening a partition's log counts for: it takes about 1 ms, a Python task without rows 50 to 100 ms."""


def pack_size(total: int, max_partition_bytes: int) -> int:
    """Bytes that a task of small pieces is filled up to, when all pieces together have `total`."""
    return min(max_partition_bytes, max(SMALL_SPLIT, total // TASKS_WISHED))


def group_splits(
    sizes: Sequence[int],
    offsets: Sequence[int],
    *,
    cores: int,
    max_partition_bytes: int,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[slice]:
    """Group pieces, in their order, into tasks that are worth their start, as Spark does with files
    (FilePartition.getFilePartitions). `sizes`: bytes of each piece; `offsets`: how many it has. `cores`: of the
    driver's machine, all that planning can see of spark.default.parallelism.

    At least `min_partitions` tasks, if there are as many pieces, and one for each core; a multiple of `cores` where
    pieces are small enough for that: a round in which a core has nothing to do costs up to a second. No task that holds
    several pieces has more than `max_records_per_partition` offsets.
    """
    least = max(cores, min_partitions or 0)
    costs = [size + OPEN_COST for size in sizes]
    total = sum(costs)
    most = pack_size(total, max_partition_bytes)
    share = total / max(least, round(total / most / cores) * cores)
    most = min(max_partition_bytes, most + most // 2)  # as far as the nearest multiple can be away, with one round
    tasks: list[slice] = []
    first = filled = held = 0
    wished = share
    for i, cost in enumerate(costs):
        too_large = filled + cost > most or filled + cost / 2 > wished  # whichever side is nearer
        too_many = max_records_per_partition is not None and held + offsets[i] > max_records_per_partition
        too_few = len(tasks) + 1 + len(costs) - i <= least  # every piece from here on has to begin a task
        if i > first and (too_large or too_many or too_few):
            tasks.append(slice(first, i))
            # less than a piece: the next task makes up for it, so that there are as many as wished
            left = wished - filled
            wished = share + (left if abs(left) <= cost else 0)
            first, filled, held = i, 0, 0
        filled += cost
        held += offsets[i]
    if costs:
        tasks.append(slice(first, len(costs)))
    return tasks


LOOK = 16 << 10
"""Bytes. Reading so many takes no longer than opening the segment did: four intervals of its indexes."""


@dataclass(frozen=True)
class Cut:
    """Batch boundary at which reading may be divided: `offset` lies at `position` of the segment `base_offset`."""

    offset: int
    base_offset: int
    position: int


@dataclass(frozen=True)
class SegmentFacts:
    """Segment as planning needs it: offsets [base_offset, end_offset), bytes, inner boundaries in order."""

    base_offset: int
    end_offset: int
    size: int
    cuts: tuple[Cut, ...] = ()


def segment_facts(
    log: PartitionLog, offsets: OffsetRange, row_filter: RowFilter, options: ReadOptions
) -> list[SegmentFacts]:
    """Segments that can hold wanted records of the range, in order; the first may begin after its base offset. With a
    timestamp filter, too old closed ones are left out at both ends, not between (a task's range has no holes)."""
    start = max(offsets.start, row_filter.offset_from)
    end = min(offsets.end, row_filter.offset_until)
    if start >= end or not log.segments:
        return []
    log.prefetch_segments(start, end)
    facts: list[SegmentFacts] = []
    by_time = row_filter.timestamp_from_ms > -1
    for index in range(log.segment_index(start), len(log.segments)):
        base = log.segments[index].base_offset
        if base >= end:
            break
        following = log.next_base_offset(index)
        largest = log.largest_timestamp(index) if by_time and following is not None else None
        if largest is not None and largest < row_filter.timestamp_from_ms:
            continue
        try:
            with log.open_segment(index) as file:
                first = max(start, base)
                position = 0
                if by_time and file.remote:
                    # Each look is a request. An index of a closed segment that is nothing but entries is believed: one
                    # copied before the broker closed the segment has zeros at its end.
                    times = file.time_index if not facts and following is not None else None
                    newest = times.last if times is not None and times.whole else None
                    if newest is not None and newest.timestamp < row_filter.timestamp_from_ms:
                        continue
                elif by_time:
                    position, offset = _time_position(file, row_filter.timestamp_from_ms)
                    if following is not None and _all_before(file, position, row_filter.timestamp_from_ms):
                        continue
                    if facts or offset <= first:
                        position = 0
                    else:
                        first = offset
                last = min(end, following if following is not None else end)
                size = _bytes_of(file, first, last, position)
                # of a segment with damage every task would judge all of it
                whole = options.reports_damage or not size
                cuts = () if whole else tuple(_cuts(file, first, last, position, options.max_partition_bytes))
                facts.append(SegmentFacts(first, last, size, cuts))
        except FileNotFoundError:
            # deleted or replaced since it was listed: the task that reads its offsets finds out what that means
            facts.append(SegmentFacts(max(start, base), following if following is not None else end, 0))
    return facts


def _time_position(file: SegmentFile, timestamp: int) -> tuple[int, int]:
    """(position, offset) before which all is older than `timestamp` ms; (0, base offset) if that takes much reading."""
    entry = file.time_index.floor_before(timestamp)
    if entry is None:
        return 0, file.base_offset
    # the batch of the entry is searched between two entries of the offset index
    _, after = file.offset_index.entries_after(entry.offset)
    searched = (int(after[0]) if len(after) else file.size) - file.locate(entry.offset)
    return position_for_timestamp(file, timestamp) if searched <= _worth_reading(file) else (0, file.base_offset)


def _all_before(file: SegmentFile, position: int, timestamp: int) -> bool:
    """True if every batch of a closed segment from `position` on is older than `timestamp` ms, and finding out takes
    little reading. Damage is left to the task, and so is a segment that ends inside a batch, which may be late."""
    if file.size - position > _worth_reading(file):
        return False
    try:
        for header in file.good_headers(position):
            if header.max_timestamp >= timestamp:
                return False
            position = header.end
    except (CorruptBatch, UnsupportedFormat):
        return False
    return position == file.size


def _worth_reading(file: SegmentFile) -> int:
    """Bytes that planning may read to save a task a segment: a missing index must not make it read the log."""
    return max(LOOK, file.size // 16)


def _bytes_of(file: SegmentFile, start: int, end: int, position: int) -> int:
    """About how many bytes the offsets take; the whole file where the range covers it. Only sizes tasks."""
    if start > file.base_offset and not position:
        position = file.offset_index.floor(start).position
    if file.next_base_offset is not None and end >= file.next_base_offset:
        return max(file.size - max(position, file.begin), 0)
    _, positions = file.offset_index.entries_after(end)
    return max((int(positions[0]) if len(positions) else file.size) - max(position, file.begin), 0)


def _cuts(file: SegmentFile, start: int, end: int, position: int, largest: int) -> Iterator[Cut]:
    """Batch boundaries about `largest` bytes apart; each an index entry that the batch there proves. Where each look is
    a request, the offset after an entry's: two tasks read one batch then, and each takes its own records of it."""
    if file.size - position <= largest:
        return
    if start > file.base_offset and not position:
        position = file.offset_index.floor(start).position
    reached = start
    while True:
        entry = file.offset_index.ceiling_position(position + largest)
        if entry is None:
            return
        position = max(entry.position, position + largest)
        if file.remote:  # unproven: the task proves where it begins, and reads by offsets
            base_offset = entry.offset + 1
        else:
            header = file.proven_entry(entry)
            if header is None or header.magic < 2:
                continue  # a wrapper's header does not say its first offset
            base_offset = header.base_offset
        if base_offset >= end:
            return
        if base_offset > reached:
            reached = base_offset
            yield Cut(reached, file.base_offset, entry.position)


_FEW_RECORDS_BYTES = 1 << 20
"""Bytes that so many records of a partition count as when tasks are packed: opening its files costs as much."""


@dataclass(frozen=True)
class Split:
    """Offset range of one partition, which one Spark task reads, alone or with others.

    `hint`: (segment base offset, position) of its start. `known_end`: where the log ended, for a task that has to look
    for its end again. Both are checked before they are used. `topic_id`: of a stream, the topic that was planned.
    `size`: about how many bytes it has on disk. `is_first`: of its partition in this read.
    """

    place: PartitionLocation
    range: OffsetRange
    hint: tuple[int, int] | None = None
    known_end: LogEnd | None = None
    topic_id: uuid.UUID | None = None
    size: int = 0
    is_first: bool = True


def plan(options: ReadOptions, row_filter: RowFilter) -> list[Split]:
    """The splits of a batch read. Raises what `partition_ranges` raises."""
    dirs = open_log_dirs(options)
    with requests_logged("planning", (root.store for root in dirs.roots)):
        partitions = partition_ranges(options, dirs, row_filter)
        if options.most_records is not None:
            # the task of a range finds which records those are, so no segment is opened for that here
            return [
                _split(partition, partition.range, size=_FEW_RECORDS_BYTES)
                for partition in partitions
                if partition.range.size > 0 or partition.range.end_is_latest or _is_about_damage(partition, options)
            ]
        return splits_of(partitions, segments_of(partitions, options, row_filter), options, row_filter)


def segments_of(
    partitions: Iterable[PartitionRange], options: ReadOptions, row_filter: RowFilter
) -> list[list[SegmentFacts]]:
    return in_parallel(
        lambda each: segment_facts(each.log, each.range, row_filter, options),
        partitions,
        lambda each: any(store.remote for store in each.log.place.stores),
    )


def splits_of(
    partitions: Sequence[PartitionRange],
    segments_of_each: Sequence[list[SegmentFacts]],
    options: ReadOptions,
    row_filter: RowFilter,
    start_hints: Mapping[TopicPartition, tuple[int, int]] = {},
) -> list[Split]:
    """The ranges cut into pieces for tasks. `start_hints`: where the first offset of a range lies, if that is known."""
    pieces: list[OffsetRange] = []
    hints: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
    pack = pack_size(
        sum(segment.size for segments in segments_of_each for segment in segments), options.max_partition_bytes
    )
    for partition, segments in zip(partitions, segments_of_each, strict=True):
        tp = partition.topic_partition
        narrowed = narrow(partition.range, segments, row_filter)
        if narrowed is None:
            continue
        if tp in start_hints:
            hints[tp, narrowed.start] = start_hints[tp]
        cuts = list(pack_segments(segments, pack))
        hints.update({(tp, cut.offset): (cut.base_offset, cut.position) for cut in cuts})
        pieces += cut_range(narrowed, [cut.offset for cut in cuts])
    ranges = split_ranges(
        pieces, min_partitions=options.min_partitions, max_records_per_partition=options.max_records_per_partition
    )
    ranges += [partition.range for partition in partitions if _is_about_damage(partition, options)]
    by_partition = {
        partition.topic_partition: (partition, segments)
        for partition, segments in zip(partitions, segments_of_each, strict=True)
    }
    splits = []
    begun: set[TopicPartition] = set()
    for each in ranges:
        tp = each.topic_partition
        partition, segments = by_partition[tp]
        hint, is_first = hints.get((tp, each.start)), tp not in begun
        splits.append(_split(partition, each, hint, size=_size_of(each, segments), is_first=is_first))
        begun.add(tp)
    return splits


def _split(
    partition: PartitionRange,
    offsets: OffsetRange,
    hint: tuple[int, int] | None = None,
    *,
    size: int,
    is_first: bool = True,
) -> Split:
    log, fixed_end = partition.log, offsets.fixed_end
    looks_for_end = fixed_end is None or not ends_before_last_segment(log, fixed_end)
    return Split(
        log.place_for(offsets.start, fixed_end),
        offsets,
        hint,
        known_end=log.log_end if looks_for_end else None,
        size=size,
        is_first=is_first,
    )


def _is_about_damage(partition: PartitionRange, options: ReadOptions) -> bool:
    """True if a range that has no offset may have rows all the same: of damage where the log ends."""
    without_offset = partition.range.size <= 0 and not partition.range.end_is_latest
    return options.reports_damage and without_offset and partition.range.end >= partition.log.log_end_offset


def check_scan_bytes(size: int, options: ReadOptions) -> None:
    """Raise OptionError where `size`, the bytes of .log files that a batch would look at, is above maxScanBytes."""
    limit = options.max_scan_bytes
    if limit is not None and size > limit:
        raise OptionError(
            f"this would read {size} bytes of .log files ({size / 1e9:.3f} GB), maxScanBytes is {limit}",
            hint="narrow it with startingTimestamp, startingOffsets or a subscription, or allow more",
        )


def tasks_of(splits: Sequence[Split], options: ReadOptions) -> list[tuple[Split, ...]]:
    """The splits of each task. Those of a partition stay in their order."""
    groups = group_splits(
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


def pack_segments(segments: Iterable[SegmentFacts], pack: int) -> Iterator[Cut]:
    """Cuts inside large segments at their own boundaries, and between segments unless both sides are small."""
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
    """`whole` without what the row filter excludes for sure; None when nothing is left. A late-bound end stays: rows
    that come later are filtered when they are read."""
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
