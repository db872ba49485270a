"""Measurement of an offset range of a stream: the bytes of its batches, and whether it contains a visible record."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.log.read.aborted_transactions import aborted_transactions
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import PositionHint, locate, proven_entry

_SEARCHED_BYTES = 1 << 20
"""Bytes of a range that are searched for a visible record. If a longer beginning of the range has only markers and
aborted records, the range becomes a batch without rows, so that it is not searched again at every trigger."""


def bytes_of(log: PartitionLog, start: int, end: int) -> int:
    """Return the bytes of the batches with offsets in [start, end). A missing or damaged segment may count less."""
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

    The result is at most `end`. If the first batch is larger than `budget`, it is the offset behind that batch.
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
                # All batches before the indexed batch end within the budget. A wrapper (v0, v1) cannot be used, because
                # its header has no first offset.
                entry = file.offset_index.floor_position(target)
                indexed = proven_entry(file, entry) if entry.position > position else None
                if indexed is not None and indexed.magic >= 2:
                    position, reached = entry.position, max(reached, indexed.base_offset)
                for header in file.headers(position):
                    if header.end > target and reached > start:
                        break
                    reached = max(reached, header.last_offset + 1)
                    if header.end >= target or reached >= end:
                        break
        except FileNotFoundError:
            return end  # the task will report the missing segment
        except (CorruptBatch, UnsupportedFormat):
            if reached == start:
                reached = end if following is None else following  # the task reports the damage
        break
    return min(reached, end)


def holds_records(
    log: PartitionLog, start: int, end: int, *, read_committed: bool, hint: PositionHint | None = None
) -> bool:
    """Return True if [start, end) may contain a record that a reader sees.

    The result is also True if the search exceeds _SEARCHED_BYTES, or fails at damage.

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
    return not all(
        any(
            transaction.producer_id == header.producer_id
            and transaction.first_offset <= header.base_offset <= transaction.last_offset
            for transaction in aborted
        )
        for header in transactional
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
    """Return the position of the first batch that reaches `offset`, or the end of the valid headers if none does."""
    if offset <= file.first_offset:  # no batch of the segment is needed
        return file.begin
    position = locate(file, offset)
    try:
        for header in file.headers(position):
            if header.last_offset >= offset:
                return header.position
            position = header.end
    except (CorruptBatch, UnsupportedFormat):
        pass  # the position affects only the division of a limit among partitions; the task reports the damage
    return position
