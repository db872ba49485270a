"""The time index (.timeindex): from a timestamp to an offset, no record before which is as late as the timestamp.

Entry, 12 bytes: timestamp i64 in ms, offset - base offset i32, big-endian. The timestamp is the largest of the
segment up to then, the offset that of the batch that reached it (its last one; some releases and formats: the
record's own). Entries are added together with those of the offset index, and one more when the segment is rolled or
closed, but only when the timestamp has grown. Logs without timestamps (message format v0) have an empty time index.

An index is a hint, as in offset_index.py, and `parse_time_index` never raises. The last entry tells the largest
timestamp of a segment only when the segment is closed and the index is whole (see `TimeIndex.whole`).
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
    """timestamps: int64[n], ms, strictly increasing; offsets: int64[n], absolute, not decreasing. whole: nothing but
    these entries was in the file; otherwise the segment was not closed cleanly, and later timestamps may be missing."""

    timestamps: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    whole: bool = True

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def last(self) -> TimestampOffset | None:
        """The last entry; None when there is none."""
        return TimestampOffset(int(self.timestamps[-1]), int(self.offsets[-1])) if len(self) else None

    def floor_before(self, timestamp: int) -> TimestampOffset | None:
        """The last entry whose timestamp is < `timestamp` ms: no record up to its offset is as late. None without."""
        slot = int(np.searchsorted(self.timestamps, timestamp, side="left")) - 1
        return None if slot < 0 else TimestampOffset(int(self.timestamps[slot]), int(self.offsets[slot]))


def _columns(data: bytes | bytearray | memoryview) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(timestamps, relative offsets) of all whole entries, int64[n] each, as they stand there."""
    entries = np.frombuffer(data, dtype=ENTRY_DTYPE, count=len(data) // ENTRY_SIZE)
    return entries["timestamp"].astype(np.int64), entries["relative_offset"].astype(np.int64)


def _valid_prefix(timestamps: npt.NDArray[np.int64], relative: npt.NDArray[np.int64], base_offset: int) -> int:
    """How many entries at the beginning can be right: timestamps rise from 0, offsets do not fall.

    Relative offset 0 is legal in the first entry only (the segment's first record may be its latest), and there only
    with a timestamp above 0; after it, it marks the padding, as in DumpLogSegments. Twelve zero bytes are always taken
    as padding: read as "largest timestamp 0" they would hide the records of a crashed segment.
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
    """Parse up to the first entry that is zero, unsorted, negative or partial. Never raises for them."""
    timestamps, relative = _columns(data)
    valid = _valid_prefix(timestamps, relative, base_offset)
    return TimeIndex(timestamps[:valid], relative[:valid] + base_offset, valid * ENTRY_SIZE == len(data))


def load_time_index(path: str | os.PathLike[str], base_offset: int) -> TimeIndex:
    """As `parse_time_index`; a missing file is an empty index."""
    return parse_time_index(read_entries(path, ENTRY_SIZE), base_offset)


def check_time_index(data: bytes | bytearray | memoryview, base_offset: int) -> None:
    """Raise CorruptIndex, with the byte position of the entry, where TimeIndex.sanityCheck would: the size is a
    multiple of 12, the last timestamp is not below the first, the last offset not below the base offset. So entries
    followed by zero padding are a fault here, unlike in the offset index. Further: up to the padding, entries rise."""
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
    """`last_timestamp` and `last_offset` are the last entry's, or -1 and the base offset when there is none."""

    ENTRY_SIZE = ENTRY_SIZE
    last_timestamp: int
    last_offset: int

    @property
    def is_full(self) -> bool:
        """True when only one slot is left: it is kept for the entry that rolling the segment adds."""
        return self.entries >= self.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int, skip_full_check: bool = False) -> bool:
        """Add an entry if `timestamp` (ms), the segment's largest so far, is above the last one's; True if it was
        added. offset: of the batch that has it. skip_full_check: on roll and close, when the slot kept for that is used
        too. Raises CorruptIndex when the offset is below the last entry's (Kafka's InvalidOffsetException), SegmentFull
        when the index is full or the offset lies more than 2^31-1 above the base offset."""
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
