"""What a range of offsets holds: bytes of batches, and whether there is a record for a reader."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.log.read.last_stable_offset import aborted_transactions
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import PositionHint, locate, proven_entry

_LOOK = 1 << 20
"""Bytes of batches without anything to read that are looked through for one that has: markers and aborted records of
more than that are handed out as a batch without rows, rather than looked through at every trigger."""


def bytes_of(log: PartitionLog, start: int, end: int) -> int:
    """Bytes of the batches that hold [start, end). A segment gone or damaged counts for what is known of it."""
    total = 0
    for index in _segments(log, start, end):
        segment, following = log.segments[index], log.next_base_offset(index)
        try:
            if start <= segment.base_offset and following is not None and following <= end:
                total += log.size_of(index)
                continue
            with log.open_segment(index) as file:
                begin = _position(file, start)
                total += (file.size if following is not None and following <= end else _position(file, end)) - begin
        except FileNotFoundError:
            continue
    return total


def end_of_bytes(log: PartitionLog, start: int, end: int, budget: int) -> int:
    """The offset, at most `end`, after the last batch within `budget` bytes from that of `start` on; after
    that batch where it is larger."""
    reached = start
    for index in _segments(log, start, end):
        following = log.next_base_offset(index)
        try:
            with log.open_segment(index) as file:
                position = _position(file, start)
                if following is not None and file.size - position <= budget:
                    budget -= file.size - position
                    reached = following
                    continue
                target = position + budget
                # All before the batch next before `target` ends by then. A wrapper does not say its first offset.
                entry = file.offset_index.floor_position(target)
                near = proven_entry(file, entry) if entry.position > position else None
                if near is not None and near.magic >= 2:
                    position, reached = entry.position, max(reached, near.base_offset)
                for header in file.headers(position):
                    if header.end > target and reached > start:
                        break
                    reached = max(reached, header.last_offset + 1)
                    if header.end >= target or reached >= end:
                        break
        except FileNotFoundError:
            return end  # the task finds out what that means
        except (CorruptBatch, UnsupportedFormat):
            if reached == start:
                reached = end if following is None else following  # the task meets the damage, and reports it
        break
    return min(reached, end)


def holds_records(
    log: PartitionLog, start: int, end: int, *, read_committed: bool, hint: PositionHint | None = None
) -> bool:
    """True if [start, end) holds a record that a reader sees, finding out would take long, or damage is in the way.
    With read_committed `end` <= the LSO. hint: (segment base offset, position) where `start`'s batch may be."""
    transactional: list[BatchHeader] = []
    looked = 0
    for index in _segments(log, start, end):
        try:
            with log.open_segment(index) as file:
                for header in file.headers(locate(file, start, hint)):
                    if header.base_offset >= end:
                        break
                    looked += header.size
                    if header.last_offset < start or header.is_control or header.record_count == 0:
                        continue
                    if not (read_committed and header.is_transactional) or looked > _LOOK:
                        return True
                    transactional.append(header)
        except (FileNotFoundError, CorruptBatch, UnsupportedFormat):
            return True
        if looked > _LOOK:
            return True
    if not transactional:
        return False
    try:
        aborted = aborted_transactions(log, start, end).aborted
    except (CorruptBatch, UnsupportedFormat):
        return True
    return any(
        not any(a.producer_id == h.producer_id and a.first_offset <= h.base_offset <= a.last_offset for a in aborted)
        for h in transactional
    )


def _segments(log: PartitionLog, start: int, end: int) -> Iterator[int]:
    """Indexes of the segments with offsets of [start, end)."""
    if start >= end or not log.segments:
        return
    for index in range(log.segment_index(start), len(log.segments)):
        if log.segments[index].base_offset >= end:
            return
        yield index


def _position(file: SegmentFile, offset: int) -> int:
    """The position of the first batch that reaches `offset`; where good headers end, when there is none."""
    if offset <= file.first_offset:  # a segment that begins there is not read
        return file.begin
    position = locate(file, offset)
    try:
        for header in file.headers(position):
            if header.last_offset >= offset:
                return header.position
            position = header.end
    except (CorruptBatch, UnsupportedFormat):
        pass  # sizes only share out a limit; the task meets the damage, and reports it
    return position
