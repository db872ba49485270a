"""Facts about segments for planning: which may contain wanted records, their bytes, and where they can be cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import ScanStart, locate, locate_timestamp, proven_entry
from kafkalog_spark.source.log_bounds import PartitionRange
from kafkalog_spark.source.offset_range import OffsetRange
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.store.parallel import in_parallel

CHEAP_READ_BYTES = 16 << 10
"""Four index intervals (index.interval.bytes). Reading so much takes no longer than opening the segment."""


@dataclass(frozen=True)
class Cut:
    """Batch boundary at which a range may be cut: `offset` is at `position` of the segment with `base_offset`."""

    offset: int
    base_offset: int
    position: int


@dataclass(frozen=True)
class SegmentFacts:
    """The part of a segment that a range covers.

    Attributes:
        base_offset: First offset.
        end_offset: Offset behind the last one.
        size: Estimated bytes.
        cuts: Possible cuts, in order.
    """

    base_offset: int
    end_offset: int
    size: int
    cuts: tuple[Cut, ...] = ()


def facts_of_ranges(
    partitions: Sequence[PartitionRange], options: ReadOptions, row_filter: RowFilter
) -> list[list[SegmentFacts]]:
    """Return the `segment_facts` of each range, read in parallel from object stores."""
    return in_parallel(
        lambda each: segment_facts(each.log, each.range, row_filter, options),
        partitions,
        lambda each: any(store.is_remote for store in each.log.location.stores),
    )


def segment_facts(
    log: PartitionLog, offsets: OffsetRange, row_filter: RowFilter, options: ReadOptions
) -> list[SegmentFacts]:
    """Return the segments that may contain wanted records of a range, in order.

    The part of the first segment may begin behind its base offset. With a timestamp filter, closed segments that are
    too old are left out. Their offsets remain in the range if they are between those of other segments.
    """
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
                if by_time and file.is_remote:
                    # Each read is a request. A time index that is full of entries is trusted without checking it: an
                    # index that was copied before the broker closed the segment has zeros at its end.
                    times = file.time_index if not facts and following is not None else None
                    newest = times.last if times is not None and times.is_complete else None
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
                # If damage is reported, every task of a segment would have to examine the whole segment.
                uncut = options.reports_damage or not size
                cuts = () if uncut else tuple(_cuts(file, first, last, position, options.max_partition_bytes))
                facts.append(SegmentFacts(first, last, size, cuts))
        except FileNotFoundError:
            # The segment was deleted or replaced since it was listed. The task that reads its offsets reports that.
            facts.append(SegmentFacts(max(start, base), following if following is not None else end, 0))
    return facts


def _time_position(file: SegmentFile, timestamp: int) -> ScanStart:
    """Return a position before which all records are older than `timestamp` ms.

    The result is the beginning of the segment if the search for a better position would read too much.
    """
    entry = file.time_index.floor_before(timestamp)
    if entry is None:
        return ScanStart(0, file.base_offset)
    # The batch of the entry is searched between two entries of the offset index.
    _, after = file.offset_index.entries_after(entry.offset)
    searched = (int(after[0]) if len(after) else file.size) - locate(file, entry.offset)
    return locate_timestamp(file, timestamp) if searched <= _read_limit(file) else ScanStart(0, file.base_offset)


def _all_before(file: SegmentFile, position: int, timestamp: int) -> bool:
    """Return True if every batch of a closed segment from `position` on is older than `timestamp` ms.

    The result is False if the check would read too much, if the segment is damaged, and if it ends inside a batch,
    which may be newer.
    """
    if file.size - position > _read_limit(file):
        return False
    try:
        for header in file.good_headers(position):
            if header.max_timestamp >= timestamp:
                return False
            position = header.end
    except (CorruptBatch, UnsupportedFormat):
        return False
    return position == file.size


def _read_limit(file: SegmentFile) -> int:
    """Return the number of bytes that planning may read to exclude a segment.

    Without the limit, planning would read the whole log if an index is missing.
    """
    return max(CHEAP_READ_BYTES, file.size // 16)


def _bytes_of(file: SegmentFile, start: int, end: int, position: int) -> int:
    """Estimate the bytes of the offsets [start, end). Only the sizes of tasks depend on the result."""
    if start > file.base_offset and not position:
        position = file.offset_index.floor(start).position
    if file.next_base_offset is not None and end >= file.next_base_offset:
        return max(file.size - max(position, file.begin), 0)
    _, positions = file.offset_index.entries_after(end)
    return max((int(positions[0]) if len(positions) else file.size) - max(position, file.begin), 0)


def _cuts(file: SegmentFile, start: int, end: int, position: int, largest: int) -> Iterator[Cut]:
    """Yield batch boundaries about `largest` bytes apart, from entries of the offset index.

    An entry is checked against the batch at its position. In an object store the check would be a request, so the cut
    is the offset behind that of the entry: two tasks then read the same batch, and each returns its own records of it.
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
        if file.is_remote:  # not checked: the task checks the position, and reads by offsets
            base_offset = entry.offset + 1
        else:
            header = proven_entry(file, entry)
            if header is None or header.magic < 2:
                continue  # the header of a wrapper (v0, v1) does not have its first offset
            base_offset = header.base_offset
        if base_offset >= end:
            return
        if base_offset > reached:
            reached = base_offset
            yield Cut(reached, file.base_offset, entry.position)
