"""The time index (.timeindex): maps a timestamp to an offset; all records before it have smaller timestamps.

Entry, 12 bytes: timestamp i64 in ms, offset - base offset i32, big-endian. The timestamp is the largest of the
segment up to then, the offset that of the batch that reached it (its last one; some releases and formats: the
record's own). Entries are added together with those of the offset index, and one more when the segment is rolled or
closed, but only when the timestamp has grown. Logs without timestamps (message format v0) have an empty time index.

An index is a hint, as in offset_index.py, and `parse_time_index` never raises. The last entry tells the largest
timestamp of a segment only when the segment is closed and the index is whole (see `TimeIndex.is_complete`).
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
from kafkalog_spark.format.layout import MAX_INT64, NO_TIMESTAMP

ENTRY_SIZE = 12
_ENTRY = struct.Struct(">qi")
ENTRY_DTYPE = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])


class TimestampOffset(NamedTuple):
    """A timestamp in ms, and the offset of the batch or record that has it."""

    timestamp: int
    offset: int


@dataclass(frozen=True, eq=False, slots=True)
class TimeIndex:
    """Entries of a time index.

    Attributes:
        timestamps: int64[n], ms, strictly increasing.
        offsets: int64[n], absolute, not decreasing.
        is_complete: True if the file had only these entries. Otherwise the segment was not closed cleanly, and entries
            for later timestamps may be missing.
    """

    timestamps: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    is_complete: bool = True

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def last(self) -> TimestampOffset | None:
        """The last entry; None without one."""
        return TimestampOffset(int(self.timestamps[-1]), int(self.offsets[-1])) if len(self) else None

    def floor_before(self, timestamp: int) -> TimestampOffset | None:
        """Return the last entry whose timestamp (ms) is < `timestamp`; None without one.

        All records up to its offset have smaller timestamps than `timestamp`.
        """
        slot = int(np.searchsorted(self.timestamps, timestamp, side="left")) - 1
        return None if slot < 0 else TimestampOffset(int(self.timestamps[slot]), int(self.offsets[slot]))


def _columns(data: bytes | bytearray | memoryview) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (timestamps, relative offsets) of all complete entries, int64[n] each, unchecked."""
    entries = np.frombuffer(data, dtype=ENTRY_DTYPE, count=len(data) // ENTRY_SIZE)
    return entries["timestamp"].astype(np.int64), entries["relative_offset"].astype(np.int64)


def _valid_prefix(timestamps: npt.NDArray[np.int64], relative: npt.NDArray[np.int64], base_offset: int) -> int:
    """Return the number of possible entries at the beginning: timestamps increase from 0 on, offsets do not decrease.

    Relative offset 0 is legal in the first entry only (the segment's first record may be its latest), and there only
    with a timestamp above 0; in later entries it marks the padding, as in DumpLogSegments. Twelve zero bytes are always
    padding: read as "largest timestamp 0", they would hide the records of a crashed segment.
    """
    if not len(timestamps):
        return 0
    good = np.ones(len(timestamps), dtype=bool)
    # Compared, not subtracted: the difference of two garbage timestamps may not fit into an int64.
    good[1:] = (timestamps[1:] > timestamps[:-1]) & (relative[1:] >= relative[:-1]) & (relative[1:] > 0)
    good[0] = timestamps[0] >= 0 and relative[0] >= 0 and (timestamps[0] > 0 or relative[0] > 0)
    good &= relative <= MAX_INT64 - base_offset
    return len(good) if good.all() else int(np.argmin(good))


def parse_time_index(data: bytes | bytearray | memoryview, base_offset: int) -> TimeIndex:
    """Parse the entries up to the first one that is zero, unsorted, negative or incomplete. Never raises for them."""
    timestamps, relative = _columns(data)
    valid = _valid_prefix(timestamps, relative, base_offset)
    return TimeIndex(timestamps[:valid], relative[:valid] + base_offset, valid * ENTRY_SIZE == len(data))


def load_time_index(path: str | os.PathLike[str], base_offset: int) -> TimeIndex:
    """Read and parse an index file, see `parse_time_index`; a missing file is an empty index."""
    return parse_time_index(read_entries(path, ENTRY_SIZE), base_offset)


def check_time_index(data: bytes | bytearray | memoryview, base_offset: int) -> None:
    """Check a time index.

    Raises:
        CorruptIndex: With the byte position of the entry, if TimeIndex.sanityCheck would fail (the size is not a
            multiple of 12, the last timestamp is below the first one, or the last offset is below the base offset), or
            if the entries before the padding do not increase. Zero padding after entries is a fault, unlike in the
            offset index.
    """
    timestamps, relative = _columns(data)
    if len(timestamps) and timestamps[-1] < timestamps[0]:
        padding = " (zeros: the segment was not closed)" if not any(data[-ENTRY_SIZE:]) else ""
        what = f"the last timestamp {int(timestamps[-1])}{padding} is below the first, {int(timestamps[0])}"
        raise CorruptIndex(what, position=(len(timestamps) - 1) * ENTRY_SIZE)
    check_end(len(data), ENTRY_SIZE, "a time index", relative, base_offset)
    slot = _valid_prefix(timestamps, relative, base_offset)
    if slot < len(relative) and relative[slot] != 0:
        before = "nothing" if slot == 0 else f"({int(timestamps[slot - 1])}, {base_offset + int(relative[slot - 1])})"
        what = f"entry {slot} (timestamp, offset) = ({int(timestamps[slot])}, {base_offset + int(relative[slot])})"
        what += f" does not follow {before}: timestamps must rise and offsets must not fall"
        raise CorruptIndex(what, position=slot * ENTRY_SIZE)


class TimeIndexWriter(IndexFile):
    """A .timeindex file open for appending.

    `last_timestamp` and `last_offset` are those of the last entry, or -1 and the base offset without one.
    """

    ENTRY_SIZE = ENTRY_SIZE
    last_timestamp: int
    last_offset: int

    @property
    def is_full(self) -> bool:
        """True if only one slot is free, which is reserved for the entry that rolling the segment appends."""
        return self.entries >= self.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int, skip_full_check: bool = False) -> bool:
        """Append an entry if `timestamp` is above that of the last entry.

        Args:
            timestamp: Largest timestamp of the segment so far, in ms.
            offset: Last offset of the batch with that timestamp.
            skip_full_check: Also use the reserved slot; for rolling and closing the segment.

        Returns:
            True if the entry was appended.

        Raises:
            CorruptIndex: If the offset is below that of the last entry (Kafka: InvalidOffsetException).
            SegmentFull: If the index is full, or if the offset is more than 2^31-1 above the base offset.
        """
        if timestamp <= self.last_timestamp:
            return False
        if self.entries >= (self.max_entries if skip_full_check else self.max_entries - 1):
            raise self._full(offset)
        relative = offset - self.base_offset
        if offset < self.last_offset:
            what = f"the time index ends with offset {self.last_offset} and cannot take a lower one"
            raise self._refused(CorruptIndex, what, offset)
        if relative > MAX_RELATIVE_OFFSET:
            what = f"offset {offset} is more than {MAX_RELATIVE_OFFSET} above the base offset {self.base_offset}"
            raise self._refused(SegmentFull, what, offset)
        self._write_next(_ENTRY.pack(timestamp, relative))
        self.entries += 1
        self.last_timestamp = timestamp
        self.last_offset = offset
        return True

    def _valid_entries(self) -> int:
        return len(load_time_index(self.path, self.base_offset))

    def _set_entries(self, entries: int) -> None:
        self.entries = entries
        self.last_timestamp = NO_TIMESTAMP
        self.last_offset = self.base_offset
        if entries:
            self.last_timestamp, relative = _ENTRY.unpack(self._read(entries - 1))
            self.last_offset += relative
