"""Contents of an offset range: the bytes of its batches, and whether it contains a visible record."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.log.read.last_stable_offset import aborted_transactions
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import PositionHint, locate, proven_entry

_SEARCHED_BYTES = 1 << 20
"""Bytes of markers and aborted records that are searched for a visible record. A range with more of them becomes a
batch without rows, so that it is not searched again at every trigger."""


def bytes_of(log: PartitionLog, start: int, end: int) -> int:
    """Return the bytes of the batches that hold [start, end). A missing or damaged segment may count for less."""
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
    """Return the offset behind the last batch that ends within `budget` bytes from the batch of `start`.

    It is at most `end`. If the first batch is larger than `budget`, it is the offset behind that batch.
    """
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
                # All batches before the indexed one end within the budget. A wrapper (v0, v1) cannot be used, because
                # its header has no first offset.
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
            return end  # the task decides what that means
        except (CorruptBatch, UnsupportedFormat):
            if reached == start:
                reached = end if following is None else following  # the task reports the damage
        break
    return min(reached, end)


def holds_records(
    log: PartitionLog, start: int, end: int, *, read_committed: bool, hint: PositionHint | None = None
) -> bool:
    """Return True if [start, end) may hold a record that a reader sees.

    Return True also if finding out takes long, or damage prevents it.

    Args:
        log: The partition.
        start: First offset.
        end: Offset behind the last one. With `read_committed` it must not be above the LSO.
        read_committed: True if records of aborted transactions are not visible.
        hint: Position where the batch of `start` may be.
    """
    transactional: list[BatchHeader] = []
    searched = 0
    for index in _segments(log, start, end):
        try:
            with log.open_segment(index) as file:
                for header in file.headers(locate(file, start, hint)):
                    if header.base_offset >= end:
                        break
                    searched += header.size
                    if header.last_offset < start or header.is_control or header.record_count == 0:
                        continue
                    if not (read_committed and header.is_transactional) or searched > _SEARCHED_BYTES:
                        return True
                    transactional.append(header)
        except (FileNotFoundError, CorruptBatch, UnsupportedFormat):
            return True
        if searched > _SEARCHED_BYTES:
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
    """Yield the indexes of the segments that have offsets in [start, end)."""
    if start >= end or not log.segments:
        return
    for index in range(log.segment_index(start), len(log.segments)):
        if log.segments[index].base_offset >= end:
            return
        yield index


def _position(file: SegmentFile, offset: int) -> int:
    """Return the position of the first batch that reaches `offset`, or the end of the good headers if none does."""
    if offset <= file.first_offset:  # no batch of the segment is needed
        return file.begin
    position = locate(file, offset)
    try:
        for header in file.headers(position):
            if header.last_offset >= offset:
                return header.position
            position = header.end
    except (CorruptBatch, UnsupportedFormat):
        pass  # only the shares of a limit depend on it; the task reports the damage
    return position
