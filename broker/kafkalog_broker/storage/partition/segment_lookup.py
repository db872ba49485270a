"""Lookups of offsets, positions and times in one segment, local or remote."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.time_index import TimeIndex

_BOUNDS = struct.Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
SCAN_READ = 8192
"""Bytes read at once in the search for a batch: index.interval.bytes, and a batch of a usual size after it."""


class BatchBounds(NamedTuple):
    """Where a batch lies. base_offset of a message in format v0 or v1: the lowest it can be."""

    position: int
    size: int
    base_offset: int
    last_offset: int

    @property
    def end(self) -> int:
        return self.position + self.size


class ReadAt(Protocol):
    def read(self, position: int, size: int) -> bytes:
        """As FileHandle.read."""


class SegmentLookup:
    """Positions of offsets in a segment's .log, local or remote, by its offset index and the headers of batches.

    The offset index is a hint: an entry is used only if its offset lies in the batch at its position. Otherwise the
    search begins where it would without an index.

    Attributes:
        end: (bytes of whole batches, the offset after them).
    """

    __slots__ = ()
    base_offset: int
    end: tuple[int, int]
    log_path: str
    time_lookup_cache: dict[tuple[int, int, int], Any]

    @property
    def size(self) -> int:
        return self.end[0]

    def handle(self) -> ReadAt:
        """The .log. Raises OSError."""
        raise NotImplementedError

    def time_index(self) -> TimeIndex:
        raise NotImplementedError

    def _index_floor(self, target: int, field: int) -> tuple[int, int]:
        """(offset, position) of the last entry of the offset index whose relative offset (field 0) or position (field
        1) is not above `target`; (base offset, 0) if there is none."""
        raise NotImplementedError

    def position_of(self, offset: int) -> int:
        """Where the last batch with an index entry at or before `offset` begins; 0 if there is none, or if the entry is
        wrong."""
        try:
            first = next(self._bounds_by_index(offset - self.base_offset, 0), None)
        except CorruptBatch:
            return 0
        return 0 if first is None else first.position

    def locate(self, offset: int) -> BatchBounds | None:
        """The first batch that ends at or past `offset`: the one that holds it, or the next one; None behind all.

        Raises CorruptBatch.
        """
        for bounds in self._bounds_by_index(offset - self.base_offset, 0):
            if bounds.last_offset >= offset:
                return bounds
        return None

    def boundary(self, start: int, limit: int) -> tuple[int, int]:
        """(position, offset) at the end of the last batch of those from `start`, where a batch begins, that ends at or
        before `limit`; (start, -1) when not even the first one ends there."""
        position, offset = start, -1
        for bounds in self._bounds_by_index(limit - 1, 1, start, limit):
            if bounds.end > limit:
                if bounds.position > start and offset < 0:
                    return bounds.position, bounds.base_offset
                break
            position, offset = bounds.end, bounds.last_offset + 1
        return position, offset

    def _bounds_by_index(
        self, target: int, field: int, start: int = 0, limit: int | None = None
    ) -> Iterator[BatchBounds]:
        """As `bounds_from`, from the batch of the index entry for `target`, see _index_floor; from `start` if no entry
        after that is right."""
        offset, position = self._index_floor(target, field)
        if position > start:
            bounds = self.bounds_from(position, limit)
            try:
                first = next(bounds, None)
            except CorruptBatch:
                first = None
            # `boundary` needs the base offset, which a message in format v0 or v1 does not tell
            lowest = self.base_offset if field == 0 else self.base_offset + 1
            if first is not None and lowest <= first.base_offset <= offset <= first.last_offset:
                yield first
                yield from bounds
                return
        yield from self.bounds_from(start, limit)

    def bounds_from(self, position: int, limit: int | None = None) -> Iterator[BatchBounds]:
        """The batches from `position` on, up to the first that begins at or past `limit`.

        Raises CorruptBatch, also for offsets that do not rise from batch to batch or lie outside the segment.
        """
        handle = self.handle()
        size, next_offset = self.end
        end = size if limit is None else min(limit, size)
        data, start = b"", position
        lowest = self.base_offset
        while position < end:
            at = position - start
            if at + _BOUNDS.size > len(data):
                start, at = position, 0
                data = handle.read(position, min(SCAN_READ, size - position))
                if len(data) < _BOUNDS.size:
                    if len(data) < size - position:
                        return
                    data = data.ljust(_BOUNDS.size, b"\0")  # a message in format v0 may be a byte shorter
            base, length, magic, delta = _BOUNDS.unpack_from(data, at)
            whole = length + layout.LOG_OVERHEAD
            last = base + delta if magic == 2 else base
            is_whole = 0 <= magic <= 2 and layout.LEGACY_MIN_SIZE[0] <= whole <= size - position
            if not is_whole or not lowest <= base <= last < next_offset:
                raise self._wrong(position, whole, magic, base, last, lowest)
            yield BatchBounds(position, whole, base if magic == 2 else min(lowest, base), last)
            position += whole
            lowest = last + 1

    def check_batches(self, data: bytes, at: int, position: int, limit: int) -> tuple[int, int]:
        """Look at the headers in data[at:], which are the bytes of the .log from `position` on, where a batch begins.

        A loop of its own beside `bounds_from`, because it sees every batch that is sent to a consumer.

        Returns:
            (position, offset) at the end of the last batch that ends at or before `limit`; (position, -1) without one.

        Raises:
            CorruptBatch: As `bounds_from`, also for the batch after these if its header is in `data`.
        """
        size, next_offset = self.end
        to_position = position - at
        file_end, last_end, last_header = size - to_position, limit - to_position, len(data) - _BOUNDS.size
        smallest, unpack_from = layout.LEGACY_MIN_SIZE[0] - layout.LOG_OVERHEAD, _BOUNDS.unpack_from
        offset, lowest = -1, self.base_offset
        while at <= last_header:
            base, length, magic, delta = unpack_from(data, at)
            last = base + delta if magic == 2 else base
            end = at + length + layout.LOG_OVERHEAD
            is_whole = 0 <= magic <= 2 and length >= smallest and end <= file_end
            if not is_whole or not lowest <= base <= last < next_offset:
                raise self._wrong(at + to_position, end - at, magic, base, last, lowest)
            if end > last_end:
                break
            at = end
            offset = lowest = last + 1
        else:
            if at < file_end <= len(data):
                what = f"{file_end - at} bytes are left, which is no whole batch"
                raise CorruptBatch(what, path=self.log_path, position=at + to_position)
        return at + to_position, offset

    def _wrong(self, position: int, whole: int, magic: int, base: int, last: int, lowest: int) -> CorruptBatch:
        """The error for the header of a batch of `whole` bytes, offsets `base` to `last`, where `lowest` may follow."""
        left = self.end[0] - position
        if not (0 <= magic <= 2 and layout.LEGACY_MIN_SIZE[0] <= whole <= left):
            what = f"{whole - layout.LOG_OVERHEAD} as the length of a batch of magic {magic}, {left} bytes are left"
            return CorruptBatch(what, path=self.log_path, position=position)
        return CorruptBatch(
            f"the batch has offsets {base} to {last}, expected offsets within {lowest} and {self.end[1] - 1}: after "
            "the batch before it, and before the next segment",
            path=self.log_path,
            position=position,
            offset=base,
        )
