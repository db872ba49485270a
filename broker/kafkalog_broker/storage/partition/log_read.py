"""Reading batches by offset: whole batches, as they lie in the file, from one segment at a time (LocalLog.read)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from kafkalog_broker.storage.partition.file_handles import FileSlice
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_spark.errors import CorruptBatch

_REMEMBERED = 16
"""Positions that a log remembers: a consumer's next fetch begins where the last one ended. As many consumers of one
partition go on without a search."""


class FoundRange(NamedTuple):
    """slices: where whole batches lie. next_offset: the offset after them; the one asked for when there are none."""

    slices: list[FileSlice]
    next_offset: int


class ReadResult(NamedTuple):
    """chunks: whole batches. next_offset: the offset after them; the one asked for when there are none."""

    chunks: list[bytes]
    next_offset: int


class ReadPositions:
    """Where batches begin that are likely to be read next: offset -> (segment's serial number, position). Not its
    base offset: compaction puts another segment in the place of one."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[int, tuple[int, int]] = {}

    def put(self, offset: int, serial: int, position: int) -> None:
        positions = self._positions
        positions.pop(offset, None)
        if len(positions) >= _REMEMBERED:
            try:
                del positions[next(iter(positions))]
            except (KeyError, RuntimeError, StopIteration):
                pass  # another thread reads too, and took it
        positions[offset] = (serial, position)

    def get(self, offset: int, serial: int) -> int | None:
        found = self._positions.get(offset)
        return found[1] if found is not None and found[0] == serial else None


def segment_slot(segments: Sequence[LogSegment], offset: int) -> int:
    """Place of the segment that holds `offset`, or would; -1 below the first."""
    return bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1


def find_range(
    segments: Sequence[LogSegment],
    positions: ReadPositions,
    offset: int,
    max_bytes: int,
    up_to: int,
    at_least_one: bool,
) -> FoundRange:
    """Batches from the one that holds `offset` on, all below `up_to`, of at most `max_bytes`.

    at_least_one: the first batch comes whole, however large it is. Raises FileNotFoundError when the segment has been
    removed since, CorruptBatch, OSError.
    """
    slot = max(segment_slot(segments, offset), 0)
    while slot < len(segments) and offset < up_to:
        segment = segments[slot]
        if segment.base_offset >= up_to:
            break
        result = _find_in_segment(segment, positions, offset, max_bytes, up_to, at_least_one)
        if result is not None:
            return result
        slot += 1  # the segment ends in a gap, as compaction leaves them
    return FoundRange([], offset)


def _find_in_segment(
    segment: LogSegment, positions: ReadPositions, offset: int, max_bytes: int, up_to: int, at_least_one: bool
) -> FoundRange | None:
    """None when the segment holds nothing at or past `offset`."""
    end, next_offset = segment.end
    if up_to < next_offset:
        bound = segment.locate(up_to)
        end = end if bound is None else bound.position
        next_offset = up_to
    start = positions.get(offset, segment.serial)
    first_size = -1
    if start is None:
        first = segment.locate(offset)
        if first is None:
            return None
        start, first_size = first.position, first.size
    if start >= end:
        return None
    size = end - start
    if size > max_bytes:
        stop, next_offset = segment.boundary(start, start + max_bytes)
        size = stop - start
        if size == 0:
            if not at_least_one:
                return FoundRange([], offset)
            first = next(segment.bounds_from(start), None)
            if first is None:
                raise CorruptBatch("the file is shorter than it was", path=segment.log_path, position=start)
            first_size, next_offset = first.size, first.last_offset + 1
            size = first_size
    found = FileSlice(segment.handle(), start, size)
    positions.put(next_offset, segment.serial, start + size)
    return FoundRange([found], next_offset)
