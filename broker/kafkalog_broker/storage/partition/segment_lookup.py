"""Search for batches in one segment, local or remote, by offset or byte position."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.time_index import TimeIndex

_BOUNDS = struct.Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
SCAN_READ = 8192
"""Bytes per read in the search for a batch: index.interval.bytes, plus a batch of usual size."""


class BatchBounds(NamedTuple):
    """Position and offsets of one batch.

    Attributes:
        base_offset: For a message of format v0 or v1: the lowest offset that it can have.
        last_offset: Last offset of the batch.
    """

    position: int
    size: int
    base_offset: int
    last_offset: int

    @property
    def end(self) -> int:
        return self.position + self.size


class SegmentEnd(NamedTuple):
    """End of the readable part of a segment: its size in bytes, and the offset after its last batch."""

    size: int
    next_offset: int


class BatchEnd(NamedTuple):
    """End of a batch: the position and the offset after it."""

    position: int
    next_offset: int


class ReadAt(Protocol):
    """File that can be read at any position."""

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes, see `FileHandle.read`."""


class SegmentLookup:
    """Finds batches in a segment's .log, local or remote.

    The offset index is only a hint: an entry is used only if its offset lies in the batch at its position. Otherwise
    the search begins where it would without an index.

    Attributes:
        end: Readable end of the segment. Replaced as a whole, so that readers on other threads see both values
            together.
        time_lookup_cache: Results of timestamp look-ups, by position, timestamp and lowest offset; see
            timestamp_lookup.py.
    """

    __slots__ = ()
    base_offset: int
    end: SegmentEnd
    log_path: str
    time_lookup_cache: dict[tuple[int, int, int], Any]

    @property
    def size(self) -> int:
        return self.end[0]

    def handle(self) -> ReadAt:
        """Open the .log. Raises OSError."""
        raise NotImplementedError

    def time_index(self) -> TimeIndex:
        """Load the time index. Raises OSError."""
        raise NotImplementedError

    def _index_floor(self, target: int, column: int) -> tuple[int, int]:
        """Find the last entry of the offset index at or below `target`.

        Args:
            column: Value to compare: 0 for relative offsets, 1 for positions.

        Returns:
            Offset and position of the entry; the base offset and 0 without one.
        """
        raise NotImplementedError

    def position_of(self, offset: int) -> int:
        """Return the position of the last indexed batch at or before `offset`; 0 without a correct index entry."""
        try:
            first = next(self._bounds_by_index(offset - self.base_offset, 0), None)
        except CorruptBatch:
            return 0
        return 0 if first is None else first.position

    def locate(self, offset: int) -> BatchBounds | None:
        """Return the first batch that ends at or after `offset`; None past the end. Raises CorruptBatch."""
        for bounds in self._bounds_by_index(offset - self.base_offset, 0):
            if bounds.last_offset >= offset:
                return bounds
        return None

    def last_batch_end(self, start: int, limit: int) -> BatchEnd | None:
        """Return the end of the last whole batch between the positions `start` and `limit`.

        Args:
            start: Position of a batch.

        Returns:
            None if not even the batch at `start` ends at or before `limit`.

        Raises:
            CorruptBatch: If a header is damaged.
        """
        last: BatchEnd | None = None
        for bounds in self._bounds_by_index(limit - 1, 1, start, limit):
            if bounds.end > limit:
                if bounds.position > start and last is None:
                    return BatchEnd(bounds.position, bounds.base_offset)
                break
            last = BatchEnd(bounds.end, bounds.last_offset + 1)
        return last

    def _bounds_by_index(
        self, target: int, column: int, start: int = 0, limit: int | None = None
    ) -> Iterator[BatchBounds]:
        """Yield the batches from the one that the index has for `target` (see `_index_floor`), as `bounds_from` does.

        Without a correct index entry above the position `start`, the batches from `start` on.
        """
        offset, position = self._index_floor(target, column)
        if position > start:
            bounds = self.bounds_from(position, limit)
            try:
                first = next(bounds, None)
            except CorruptBatch:
                first = None
            # `last_batch_end` needs the exact base offset, which a message of format v0 or v1 does not contain.
            lowest = self.base_offset if column == 0 else self.base_offset + 1
            if first is not None and lowest <= first.base_offset <= offset <= first.last_offset:
                yield first
                yield from bounds
                return
        yield from self.bounds_from(start, limit)

    def bounds_from(self, position: int, limit: int | None = None) -> Iterator[BatchBounds]:
        """Yield the batches from `position` on, up to the first one that begins at or after the position `limit`.

        Raises:
            CorruptBatch: If a header is damaged, or offsets do not rise from batch to batch or lie outside of the
                segment.
        """
        handle = self.handle()
        size, next_offset = self.end
        end = size if limit is None else min(limit, size)
        data = b""
        start = position
        lowest = self.base_offset
        while position < end:
            at = position - start
            if at + _BOUNDS.size > len(data):
                start = position
                at = 0
                data = handle.read(position, min(SCAN_READ, size - position))
                if len(data) < _BOUNDS.size:
                    if len(data) < size - position:
                        return
                    data = data.ljust(_BOUNDS.size, b"\0")  # a message in format v0 may be a byte shorter
            base, length, magic, delta = _BOUNDS.unpack_from(data, at)
            whole = length + layout.LOG_OVERHEAD
            last = base + delta if magic == 2 else base
            is_complete = 0 <= magic <= 2 and layout.LEGACY_MIN_SIZE[0] <= whole <= size - position
            if not is_complete or not lowest <= base <= last < next_offset:
                raise self._bad_header_error(position, whole, magic, base, last, lowest)
            yield BatchBounds(position, whole, base if magic == 2 else min(lowest, base), last)
            position += whole
            lowest = last + 1

    def check_batches(self, data: bytes, at: int, position: int, limit: int) -> BatchEnd | None:
        """Check the batch headers in data[at:], the bytes of the .log from `position` on, where a batch begins.

        This repeats the checks of `bounds_from` without creating objects, because it runs for every batch that is read
        from remote storage.

        Returns:
            End of the last batch that ends at or before `limit`; None if there is none.

        Raises:
            CorruptBatch: As `bounds_from`, also for the batch after these if its header is in `data`.
        """
        size, next_offset = self.end
        to_position = position - at
        file_end = size - to_position
        last_end = limit - to_position
        last_header = len(data) - _BOUNDS.size
        smallest = layout.LEGACY_MIN_SIZE[0] - layout.LOG_OVERHEAD
        unpack_from = _BOUNDS.unpack_from
        offset = -1
        lowest = self.base_offset
        while at <= last_header:
            base, length, magic, delta = unpack_from(data, at)
            last = base + delta if magic == 2 else base
            end = at + length + layout.LOG_OVERHEAD
            is_complete = 0 <= magic <= 2 and length >= smallest and end <= file_end
            if not is_complete or not lowest <= base <= last < next_offset:
                raise self._bad_header_error(at + to_position, end - at, magic, base, last, lowest)
            if end > last_end:
                break
            at = end
            offset = lowest = last + 1
        else:
            if at < file_end <= len(data):
                message = f"{file_end - at} bytes are left, which is not a whole batch"
                raise CorruptBatch(message, path=self.log_path, position=at + to_position)
        return None if offset < 0 else BatchEnd(at + to_position, offset)

    def _bad_header_error(
        self, position: int, whole: int, magic: int, base: int, last: int, lowest: int
    ) -> CorruptBatch:
        """Return the error for a damaged header. lowest: Lowest offset that the batch may have."""
        left = self.end[0] - position
        if not (0 <= magic <= 2 and layout.LEGACY_MIN_SIZE[0] <= whole <= left):
            message = f"the batch has length {whole - layout.LOG_OVERHEAD} and magic {magic}, {left} bytes are left"
            return CorruptBatch(message, path=self.log_path, position=position)
        return CorruptBatch(
            f"the batch has offsets {base} to {last}, expected offsets between {lowest}, which follows the previous "
            f"batch, and {self.end[1] - 1}, the segment's last one",
            path=self.log_path,
            position=position,
            offset=base,
        )
