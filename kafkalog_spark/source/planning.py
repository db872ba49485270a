"""From the offset ranges of a read to its Spark tasks: which segments are opened, where large ones are cut.

    log directories -> assigned partitions -> offset ranges -> pieces (segments, batch boundaries) -> splits

Decisions are made on `SegmentFacts`; the functions at the end read them from the files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.log.log_dir import LogDirs, PartitionPlace
from kafkalog_spark.log.log_end import LogEnd
from kafkalog_spark.log.partition_log import PartitionLog
from kafkalog_spark.log.segment_file import SegmentFile
from kafkalog_spark.log.segment_time import position_for_timestamp
from kafkalog_spark.source.bounds import LogView, OffsetRange, cut_range, resolve_bounds
from kafkalog_spark.source.filters import RowFilter
from kafkalog_spark.source.log_view import ends_before_last_segment, opened_view
from kafkalog_spark.source.offset_range_limit import TopicPartition
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.range_calculator import split_ranges
from kafkalog_spark.source.subscription import assigned_partitions

SMALL_SPLIT = 4 << 20
"""Bytes. Segments below this share a task with their neighbours: starting a task costs as much as reading about 4 MB
(Spark's own spark.sql.files.openCostInBytes)."""
TASKS_WISHED = 64
"""A read of many small segments is packed into about so many tasks: enough for the cores of most clusters."""


LOOK = 16 << 10
"""Bytes. Reading so many takes no longer than opening the segment did: four intervals of its indexes."""


@dataclass(frozen=True)
class Split:
    """One Spark task: a range of offsets of one partition.

    `hint`: (segment base offset, position) of its start. `known_end`: where the log ended, for a task that has to look
    for its end again. Both are checked before they are used. `topic_id`: of a stream, the topic that was planned.
    """

    place: PartitionPlace
    range: OffsetRange
    hint: tuple[int, int] | None = None
    known_end: LogEnd | None = None
    topic_id: uuid.UUID | None = None

    @property
    def fixed_end(self) -> int | None:
        """The end of the range, None where it is late-bound."""
        return None if self.range.end_is_latest else self.range.end


@dataclass(frozen=True)
class Cut:
    """A batch boundary: reading may be divided at `offset`, which lies at `position` of the segment `base_offset`."""

    offset: int
    base_offset: int
    position: int


@dataclass(frozen=True)
class SegmentFacts:
    """What planning knows of a segment: offsets [base_offset, end_offset), bytes, and inner boundaries in order."""

    base_offset: int
    end_offset: int
    size: int
    cuts: tuple[Cut, ...] = ()


def plan(options: ReadOptions, row_filter: RowFilter) -> list[Split]:
    """The tasks of a batch read.

    Raises what the bounds raise (OptionError, OffsetOutOfRange, DataLoss), UnknownPartition, NotALogDirectory,
    CorruptBatch where the end of a log cannot be told from damage.
    """
    dirs = LogDirs.open(options.paths)
    assigned = assigned_partitions(options.subscription, dirs.places)
    logs: dict[TopicPartition, PartitionLog] = {}
    views: dict[TopicPartition, LogView] = {}
    for tp in assigned:
        if row_filter.keeps_nothing or not row_filter.accepts_partition(*tp):
            continue  # finding the end of its log would be for nothing
        found = opened_view(dirs.places[tp], options)
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
    facts = {r.topic_partition: segment_facts(logs[r.topic_partition], r, row_filter, options) for r in ranges}
    return splits_of(ranges, facts, dirs.places, logs, options, row_filter)


def splits_of(
    ranges: Iterable[OffsetRange],
    facts: Mapping[TopicPartition, list[SegmentFacts]],
    places: Mapping[TopicPartition, PartitionPlace],
    logs: Mapping[TopicPartition, PartitionLog],
    options: ReadOptions,
    row_filter: RowFilter,
    start_hints: Mapping[TopicPartition, tuple[int, int]] | None = None,
) -> list[Split]:
    """The ranges as tasks. `facts`: of each, the segments it needs; `start_hints`: where its first offset lies, where
    that is known."""
    pieces: list[OffsetRange] = []
    hints: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
    pack = pack_size(sum(segment.size for segments in facts.values() for segment in segments), options)
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
    tasks = split_ranges(
        pieces, min_partitions=options.min_partitions, max_records_per_partition=options.max_records_per_partition
    )
    splits = [Split(places[r.topic_partition], r, hints.get((r.topic_partition, r.start))) for r in tasks]
    return [_with_known_end(split, logs[split.range.topic_partition]) for split in splits]


def _with_known_end(split: Split, log: PartitionLog) -> Split:
    """The split, with the end of the log where its task will look for that."""
    if split.fixed_end is not None and ends_before_last_segment(log, split.fixed_end):
        return split
    return replace(split, known_end=log.log_end)


def pack_size(total: int, options: ReadOptions) -> int:
    """Bytes that a task of small segments is filled up to."""
    return min(options.max_partition_bytes, max(SMALL_SPLIT, total // TASKS_WISHED))


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


def segment_facts(
    log: PartitionLog, asked: OffsetRange, row_filter: RowFilter, options: ReadOptions
) -> list[SegmentFacts]:
    """The segments that can hold wanted records of the range, in order; the first may begin behind its base offset.

    Segments outside the range are never opened; with a timestamp filter, closed segments whose largest timestamp is
    too small are left out at both ends of the list (not in the middle: a task's range has no holes).
    """
    start = max(asked.start, row_filter.offset_from)
    end = min(asked.end, row_filter.offset_until)
    if start >= end or not log.segments:
        return []
    facts: list[SegmentFacts] = []
    by_time = row_filter.timestamp_from_ms > -1
    for index in range(log.segment_index(start), len(log.segments)):
        base = log.segments[index].base_offset
        if base >= end:
            break
        following = log.next_base_offset(index)
        try:
            with log.open_segment(index) as file:
                first = max(start, base)
                position = 0
                if by_time:
                    position, offset = _time_position(file, row_filter.timestamp_from_ms)
                    if following is not None and _all_before(file, position, row_filter.timestamp_from_ms):
                        continue
                    if facts or offset <= first:
                        position = 0
                    else:
                        first = offset
                last = min(end, following if following is not None else end)
                size = _bytes_of(file, first, last, position)
                cuts = tuple(_cuts(file, first, last, position, options.max_partition_bytes)) if size else ()
                facts.append(SegmentFacts(first, last, size, cuts))
        except FileNotFoundError:
            # deleted or replaced since it was listed: the task that reads its offsets finds out what that means
            facts.append(SegmentFacts(max(start, base), following if following is not None else end, 0))
    return facts


def _time_position(file: SegmentFile, timestamp: int) -> tuple[int, int]:
    """(position, offset) before which no record has a timestamp >= `timestamp` ms, where the indexes tell it for little
    reading; (0, base offset) where they do not."""
    entry = file.time_index.floor_before(timestamp)
    if entry is None:
        return 0, file.base_offset
    # the batch of the entry is searched between two entries of the offset index
    _, behind = file.offset_index.entries_after(entry.offset)
    searched = (int(behind[0]) if len(behind) else file.size) - file.locate(entry.offset)
    return position_for_timestamp(file, timestamp) if searched <= _worth_reading(file) else (0, file.base_offset)


def _all_before(file: SegmentFile, position: int, timestamp: int) -> bool:
    """Whether every batch of a closed segment from `position` on is older than `timestamp` ms, where telling that takes
    little reading.

    Damage is left to the task that reads it, and so is a segment that ends inside a batch, which may be a late one.
    """
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
    """Bytes that planning reads of a segment to save a task from reading it: an index that is missing must not make it
    read the log."""
    return max(LOOK, file.size // 16)


def _bytes_of(file: SegmentFile, start: int, end: int, position: int) -> int:
    """About how many bytes the offsets take; the whole file where the range covers it. Only sizes tasks."""
    if start > file.base_offset and not position:
        position = file.offset_index.floor(start).position
    if file.next_base_offset is not None and end >= file.next_base_offset:
        return max(file.size - position, 0)
    _, positions = file.offset_index.entries_after(end)
    return max((int(positions[0]) if len(positions) else file.size) - position, 0)


def _cuts(file: SegmentFile, start: int, end: int, position: int, largest: int) -> Iterator[Cut]:
    """Batch boundaries about `largest` bytes apart; each an index entry that the batch there proves."""
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
        header = file.proven_entry(entry)
        if header is None or header.magic < 2:
            continue  # of a wrapper the header does not tell the first offset
        if header.base_offset >= end:
            return
        if header.base_offset > reached:
            reached = header.base_offset
            yield Cut(reached, file.base_offset, entry.position)


def splits_by_partition(splits: Iterable[Split]) -> Mapping[TopicPartition, list[Split]]:
    """Splits grouped for a summary."""
    grouped: dict[TopicPartition, list[Split]] = {}
    for split in splits:
        grouped.setdefault(split.range.topic_partition, []).append(split)
    return grouped
