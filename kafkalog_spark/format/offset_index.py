"""The offset index (.index): from an offset to the byte position where scanning for it can begin.

Entry, 8 bytes: offset - base offset i32, position i32, big-endian. The offset is the LAST one of a batch and the
position the START of that batch (before Kafka 4.1, KAFKA-806: last offset of one append of several batches and start
of the first of them; before 0.11 the first offset of the append). The first batch of a segment gets no entry, the
next ones get one whenever more than index.interval.bytes were appended since the last entry.

An index is a hint: an active or crashed one ends in zeros, a truncated log may leave entries of dropped batches
after the valid ones, and a file may be damaged. So `parse_offset_index` never raises and stops at the first entry
that cannot be right; whoever uses an entry checks it against the batch it points to.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptIndex, SegmentFull
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET, IndexFile, check_end, read_entries
from kafkalog_spark.format.layout import MAX_INT64

ENTRY_SIZE = 8
_ENTRY = struct.Struct(">ii")
ENTRY_DTYPE = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
_SEARCH_BLOCK = 512
"""Entries that are read at once when a search in the file has come down to so many: one page."""


class OffsetPosition(NamedTuple):
    """An offset, and the byte position in the .log of the batch that it belongs to."""

    offset: int
    position: int


@dataclass(frozen=True, eq=False, slots=True)
class OffsetIndex:
    """offsets: int64[n], absolute; positions: int64[n], bytes in the .log. Both strictly increase."""

    offsets: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    base_offset: int

    def __len__(self) -> int:
        return len(self.offsets)

    def floor(self, offset: int) -> OffsetPosition:
        """The last entry whose offset is <= `offset`; (base offset, 0) when there is none (OffsetIndex.lookup). The
        batch that contains `offset` lies at its position or after it."""
        return self._entry(int(np.searchsorted(self.offsets, offset, side="right")) - 1)

    def ceiling_position(self, position: int) -> OffsetPosition | None:
        """The first entry whose position is >= `position` bytes; None when there is none."""
        slot = int(np.searchsorted(self.positions, position, side="left"))
        return None if slot == len(self) else self._entry(slot)

    def floor_position(self, position: int) -> OffsetPosition:
        """The last entry whose position is <= `position`; (base offset, 0) when there is none."""
        return self._entry(int(np.searchsorted(self.positions, position, side="right")) - 1)

    def _entry(self, slot: int) -> OffsetPosition:
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(int(self.offsets[slot]), int(self.positions[slot]))

    def entries_after(self, offset: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(offsets, positions) of the entries whose offset is > `offset`; views, not copies."""
        slot = int(np.searchsorted(self.offsets, offset, side="right"))
        return self.offsets[slot:], self.positions[slot:]


def _columns(data: bytes | bytearray | memoryview) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(relative offsets, positions) of all whole entries, int64[n] each, as they stand there."""
    entries = np.frombuffer(data, dtype=ENTRY_DTYPE, count=len(data) // ENTRY_SIZE)
    return entries["relative_offset"].astype(np.int64), entries["position"].astype(np.int64)


def _valid_prefix(relative: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], base_offset: int) -> int:
    """How many entries at the beginning can be right: offsets rise from above 0, which is padding, positions from 0."""
    good = np.diff(relative, prepend=0) > 0
    good &= np.diff(positions, prepend=-1) > 0
    good &= relative <= MAX_INT64 - base_offset
    return len(good) if good.all() else int(np.argmin(good))


def parse_offset_index(data: bytes | bytearray | memoryview, base_offset: int) -> OffsetIndex:
    """Parse up to the first entry that is zero, unsorted, negative or partial. Never raises for them."""
    relative, positions = _columns(data)
    valid = _valid_prefix(relative, positions, base_offset)
    return OffsetIndex(relative[:valid] + base_offset, positions[:valid], base_offset)


def load_offset_index(path: str | os.PathLike[str], base_offset: int) -> OffsetIndex:
    """As `parse_offset_index`; a missing file is an empty index."""
    return parse_offset_index(read_entries(path, ENTRY_SIZE), base_offset)


def search_file(fd: int, entries: int, target: int, field: int) -> tuple[int, int]:
    """(relative offset, position) of the last entry in an index file whose relative offset (field 0) or position
    (field 1) is not above `target`; (0, 0) if there is none. No copy of it is held. Zeros after the entries are
    padding."""
    low, high, found = 0, entries, (0, 0)
    block, block_at = b"", 0  # the last steps of the search need no system call each
    while low < high:
        if not block and high - low <= _SEARCH_BLOCK:
            block, block_at = os.pread(fd, (high - low) * ENTRY_SIZE, low * ENTRY_SIZE), low
        middle = (low + high) // 2
        data, at = block, (middle - block_at) * ENTRY_SIZE
        if not data:
            data, at = os.pread(fd, ENTRY_SIZE, middle * ENTRY_SIZE), 0
        entry = _ENTRY.unpack_from(data, at) if len(data) >= at + ENTRY_SIZE else (0, 0)
        if entry[0] > 0 and entry[field] <= target:
            low, found = middle + 1, (entry[0], entry[1])
        else:
            high = middle
    return found


def check_offset_index(data: bytes | bytearray | memoryview, base_offset: int) -> None:
    """Raise CorruptIndex, with the byte position of the entry, where OffsetIndex.sanityCheck would (a size that is no
    multiple of 8, a last offset below the base offset), and where entries do not rise up to the zero padding."""
    relative, positions = _columns(data)
    check_end(len(data), ENTRY_SIZE, "an offset index", relative, base_offset)
    slot = _valid_prefix(relative, positions, base_offset)
    # DumpLogSegments takes the first entry with relative offset 0 as the beginning of the padding.
    if slot < len(relative) and relative[slot] != 0:
        before = "nothing" if slot == 0 else f"({base_offset + int(relative[slot - 1])}, {int(positions[slot - 1])})"
        what = f"entry {slot} (offset, position) = ({base_offset + int(relative[slot])}, {int(positions[slot])})"
        what += f" does not follow {before}: offsets and positions must rise"
        raise CorruptIndex(what, position=slot * ENTRY_SIZE)


class OffsetIndexWriter(IndexFile):
    """An .index file open for appending; `last_offset` is the last entry's, or the base offset when there is none."""

    ENTRY_SIZE = ENTRY_SIZE
    last_offset: int

    @property
    def is_full(self) -> bool:
        """True when the next entry does not fit: the segment is to be rolled before anything is appended."""
        return self.entries >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """offset: the last one of a batch; position: the byte where that batch begins.

        Raises CorruptIndex when offset is not above the last entry's (Kafka's InvalidOffsetException), SegmentFull
        when the index is full, or the offset or the position lies more than 2^31-1 past the segment's beginning.
        """
        if self.entries >= self.max_entries:
            raise self._full(offset)
        relative = offset - self.base_offset
        if relative < 0 or (self.entries and offset <= self.last_offset):
            what = f"the index ends with offset {self.last_offset} and can only take a higher one"
            raise self._refused(CorruptIndex, what, offset)
        if relative > MAX_RELATIVE_OFFSET or position > MAX_RELATIVE_OFFSET:
            what = f"offset {offset} at byte {position} is too far from the base offset {self.base_offset}: "
            raise self._refused(
                SegmentFull, f"{what}an index entry holds at most {MAX_RELATIVE_OFFSET} of each", offset
            )
        self._write_next(_ENTRY.pack(relative, position))
        self.entries += 1
        self.last_offset = offset

    @property
    def last(self) -> OffsetPosition:
        """The last entry; (base offset, 0) when there is none."""
        if not self.entries:
            return OffsetPosition(self.base_offset, 0)
        relative, position = _ENTRY.unpack(self._read(self.entries - 1))
        return OffsetPosition(self.base_offset + relative, position)

    def _valid_entries(self) -> int:
        return len(load_offset_index(self.path, self.base_offset))

    def _set_entries(self, entries: int) -> None:
        self.entries = entries
        self.last_offset = self.last.offset
