"""The offset index (.index): maps an offset to the byte position at which a scan for it can begin.

Entry, 8 bytes: offset - base offset i32, position i32, big-endian. The offset is the LAST one of a batch and the
position the START of that batch (before Kafka 4.1, KAFKA-806: last offset of one append of several batches and start
of the first of them; before 0.11 the first offset of the append). The first batch of a segment gets no entry, the
next ones get one whenever more than index.interval.bytes were appended since the last entry.

An index is only a hint: it ends in zeros while the segment is active or after a crash, it may have entries of batches
that a truncation of the log removed, and it may be damaged. Therefore `parse_offset_index` never raises, and stops at
the first entry that is impossible; the reader checks an entry against the batch to which it points.
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
"""Number of entries from which on the rest of a binary search is done in memory, after one read of a page."""


class OffsetPosition(NamedTuple):
    """An offset, and the byte position in the .log of the batch with that offset."""

    offset: int
    position: int


@dataclass(frozen=True, eq=False, slots=True)
class OffsetIndex:
    """Entries of an offset index.

    Attributes:
        offsets: int64[n], absolute, strictly increasing.
        positions: int64[n], bytes in the .log, strictly increasing.
        base_offset: Base offset of the segment.
    """

    offsets: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    base_offset: int

    def __len__(self) -> int:
        return len(self.offsets)

    def floor(self, offset: int) -> OffsetPosition:
        """Return the last entry whose offset is <= `offset`; (base offset, 0) without one (Kafka: OffsetIndex.lookup).

        The batch that contains `offset` begins at its position or after it.
        """
        return self._entry(int(np.searchsorted(self.offsets, offset, side="right")) - 1)

    def ceiling_position(self, position: int) -> OffsetPosition | None:
        """Return the first entry whose position is >= `position`; None without one."""
        slot = int(np.searchsorted(self.positions, position, side="left"))
        return None if slot == len(self) else self._entry(slot)

    def floor_position(self, position: int) -> OffsetPosition:
        """Return the last entry whose position is <= `position`; (base offset, 0) without one."""
        return self._entry(int(np.searchsorted(self.positions, position, side="right")) - 1)

    def _entry(self, slot: int) -> OffsetPosition:
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(int(self.offsets[slot]), int(self.positions[slot]))

    def entries_after(self, offset: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return (offsets, positions) of the entries whose offset is > `offset`, int64[n] each, as views."""
        slot = int(np.searchsorted(self.offsets, offset, side="right"))
        return self.offsets[slot:], self.positions[slot:]


def _columns(data: bytes | bytearray | memoryview) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (relative offsets, positions) of all complete entries, int64[n] each, unchecked."""
    entries = np.frombuffer(data, dtype=ENTRY_DTYPE, count=len(data) // ENTRY_SIZE)
    return entries["relative_offset"].astype(np.int64), entries["position"].astype(np.int64)


def _valid_prefix(relative: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], base_offset: int) -> int:
    """Return the number of possible entries at the beginning: offsets increase from 1 on, positions from 0 on."""
    good = np.diff(relative, prepend=0) > 0
    good &= np.diff(positions, prepend=-1) > 0
    good &= relative <= MAX_INT64 - base_offset
    return len(good) if good.all() else int(np.argmin(good))


def parse_offset_index(data: bytes | bytearray | memoryview, base_offset: int) -> OffsetIndex:
    """Parse the entries up to the first one that is zero, unsorted, negative or incomplete. Never raises for them."""
    relative, positions = _columns(data)
    valid = _valid_prefix(relative, positions, base_offset)
    return OffsetIndex(relative[:valid] + base_offset, positions[:valid], base_offset)


def load_offset_index(path: str | os.PathLike[str], base_offset: int) -> OffsetIndex:
    """Read and parse an index file, see `parse_offset_index`; a missing file is an empty index."""
    return parse_offset_index(read_entries(path, ENTRY_SIZE), base_offset)


def search_file(fd: int, entries: int, target: int, field: int) -> tuple[int, int]:
    """Search an index file without loading it. Zeros after the entries are padding.

    Args:
        fd: Descriptor of the file.
        entries: Number of entries that the file has room for.
        target: Relative offset, or position.
        field: 0 to compare relative offsets, 1 to compare positions.

    Returns:
        (relative offset, position) of the last entry that is not above `target`; (0, 0) without one.
    """
    low, high, floor = 0, entries, (0, 0)
    block, block_at = b"", 0  # one read instead of a system call for each of the last steps
    while low < high:
        if not block and high - low <= _SEARCH_BLOCK:
            block, block_at = os.pread(fd, (high - low) * ENTRY_SIZE, low * ENTRY_SIZE), low
        middle = (low + high) // 2
        data, at = block, (middle - block_at) * ENTRY_SIZE
        if not data:
            data, at = os.pread(fd, ENTRY_SIZE, middle * ENTRY_SIZE), 0
        entry = _ENTRY.unpack_from(data, at) if len(data) >= at + ENTRY_SIZE else (0, 0)
        if entry[0] > 0 and entry[field] <= target:
            low, floor = middle + 1, (entry[0], entry[1])
        else:
            high = middle
    return floor


def check_offset_index(data: bytes | bytearray | memoryview, base_offset: int) -> None:
    """Check an offset index.

    Raises:
        CorruptIndex: With the byte position of the entry, if OffsetIndex.sanityCheck would fail (the size is not a
            multiple of 8, or the last offset is below the base offset), or if the entries before the zero padding do
            not increase.
    """
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
    """An .index file open for appending. `last_offset` is that of the last entry, or the base offset without one."""

    ENTRY_SIZE = ENTRY_SIZE
    last_offset: int

    @property
    def is_full(self) -> bool:
        """True if the next entry does not fit: roll the segment before the next append."""
        return self.entries >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """Append an entry.

        Args:
            offset: Last offset of a batch.
            position: Byte at which that batch begins.

        Raises:
            CorruptIndex: If the offset is not above that of the last entry (Kafka: InvalidOffsetException).
            SegmentFull: If the index is full, or if offset or position is more than 2^31-1 past the beginning of
                the segment.
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
        """The last entry; (base offset, 0) without one."""
        if not self.entries:
            return OffsetPosition(self.base_offset, 0)
        relative, position = _ENTRY.unpack(self._read(self.entries - 1))
        return OffsetPosition(self.base_offset + relative, position)

    def _valid_entries(self) -> int:
        return len(load_offset_index(self.path, self.base_offset))

    def _set_entries(self, entries: int) -> None:
        self.entries = entries
        self.last_offset = self.last.offset
