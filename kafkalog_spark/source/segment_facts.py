"""What planning finds out about a partition's segments before tasks are made: which hold wanted offsets, how large they
are, and where large ones may be cut. Segments outside the range are never opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_time import position_for_timestamp
from kafkalog_spark.source.bounds import OffsetRange
from kafkalog_spark.source.filters import RowFilter
from kafkalog_spark.source.options import ReadOptions

LOOK = 16 << 10
"""Bytes. Reading so many takes no longer than opening the segment did: four intervals of its indexes."""


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


def segment_facts(
    log: PartitionLog, asked: OffsetRange, row_filter: RowFilter, options: ReadOptions
) -> list[SegmentFacts]:
    """The segments that can hold wanted records of the range, in order; the first may begin after its base offset.

    Segments outside the range are never opened; with a timestamp filter, closed segments whose largest timestamp is
    too small are left out at both ends of the list (not in the middle: a task's range has no holes).
    """
    start = max(asked.start, row_filter.offset_from)
    end = min(asked.end, row_filter.offset_until)
    if start >= end or not log.segments:
        return []
    log.settle(start, end)
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
                    if not facts and following is not None and _index_says_before(file, row_filter.timestamp_from_ms):
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
    """(position, offset) before which no record has a timestamp >= `timestamp` ms, where the indexes give it for little
    reading; (0, base offset) where they do not."""
    entry = file.time_index.floor_before(timestamp)
    if entry is None:
        return 0, file.base_offset
    # the batch of the entry is searched between two entries of the offset index
    _, after = file.offset_index.entries_after(entry.offset)
    searched = (int(after[0]) if len(after) else file.size) - file.locate(entry.offset)
    return position_for_timestamp(file, timestamp) if searched <= _worth_reading(file) else (0, file.base_offset)


def _all_before(file: SegmentFile, position: int, timestamp: int) -> bool:
    """Whether every batch of a closed segment from `position` on is older than `timestamp` ms, where finding out takes
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


def _index_says_before(file: SegmentFile, timestamp: int) -> bool:
    """Whether the time index of a closed segment, where each look is a request, ends before `timestamp` ms.

    It is believed where nothing but entries is in it: a broker adds the largest timestamp when it closes a segment, and
    what was copied before that has zeros at its end.
    """
    index = file.time_index
    return index.whole and index.last is not None and index.last.timestamp < timestamp


def _worth_reading(file: SegmentFile) -> int:
    """Bytes that planning reads of a segment to save a task from reading it: an index that is missing must not make it
    read the log."""
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
    """Batch boundaries about `largest` bytes apart; each an index entry that the batch there proves.

    Where each look is a request, the offset after an entry's: one batch is read by two tasks then, and each takes its
    own records of it.
    """
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
