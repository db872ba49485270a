"""Check a segment batch by batch and rebuild its indexes (LogSegment.recover); read by log.read.segment_file."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format import names, offset_index, time_index
from kafkalog_spark.format.atomic_file import descriptor, fsync_descriptor, replace_file
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import NO_TIMESTAMP, HeaderColumn
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.read.segment_file import Table, Window, header_windows
from kafkalog_spark.log.write.segment_roll import INDEX_INTERVAL_BYTES
from kafkalog_spark.store.local_store import DescriptorFile


class OffsetOverflow(Exception):
    """Offsets reach too far above the base offset for an index: to be split (LogSegmentOffsetOverflowException)."""

    def __init__(self, path: Path, base_offset: int, last_offset: int, position: int) -> None:
        super().__init__(
            f"{path} has a batch up to offset {last_offset} at byte {position}, an index of it ends at offset "
            f"{base_offset + MAX_RELATIVE_OFFSET}"
        )
        self.base_offset = base_offset


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """Result of recovering a segment. damage: why it was cut; None if all was good. largest_timestamp: ms or -1."""

    base_offset: int
    next_offset: int
    size: int
    truncated_bytes: int
    largest_timestamp: int
    damage: KafkalogError | None


def recover_segment(
    directory: Path,
    base_offset: int,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    on_window: Callable[[Window], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
    *,
    first_bad: Callable[[Window], tuple[int, KafkalogError] | None] | None = None,
    before_cut: Callable[[], None] = lambda: None,
    may_cut: bool = True,
    sync: bool = False,
) -> RecoveredSegment:
    """Check every batch of a segment, cut the segment after the last good one, and rebuild .index and .timeindex.

    A batch is good if it is whole, its CRC is valid, its offsets rise and `first_bad` accepts it. Everything behind the
    first bad batch is cut off, too, as in Kafka. The indexes are those of a segment that was closed cleanly.

    Args:
        on_window: Called with the good batches, in order, before the indexes are written. Its bytes are valid only
            during the call.
        on_bytes: Called with the number of bytes of each window.
        first_bad: Returns the row of the first batch of a window that has to go, and the reason, or None.
        before_cut: Called before the .log is cut. The cut is on disk on return: nothing that is appended afterwards can
            meet bytes that were cut off.
        may_cut: False raises the damage instead, and changes nothing.
        sync: All three files are on disk on return.

    Raises:
        OffsetOverflow: Before anything is cut, if the segment has to be split.
        OSError: If a file cannot be read or written.
    """
    path = directory / (names.segment_name(base_offset) + names.LOG_SUFFIX)
    indexes = IndexBuilder(base_offset, index_interval_bytes)
    position, next_offset = 0, base_offset
    damage: KafkalogError | None = None
    with descriptor(path, os.O_RDWR) as fd:
        end = os.fstat(fd).st_size
        for window, wrong in ordered_windows(fd, path, base_offset, end) if end else ():
            bad = None if first_bad is None else first_bad(window)
            if bad is not None:
                good, wrong = bad
                window = window.first(good)
            if len(window.table):
                if on_window is not None:
                    on_window(window)
                indexes.add(window.table)
                last = window.table[-1]
                if on_bytes is not None:
                    on_bytes(int(last[HeaderColumn.POSITION] + last[HeaderColumn.SIZE]) - position)
                position = int(last[HeaderColumn.POSITION] + last[HeaderColumn.SIZE])
                next_offset = int(last[HeaderColumn.LAST_OFFSET]) + 1
            if wrong is not None:
                damage = wrong.at(path=str(path), position=position, offset=next_offset)
                if not may_cut:
                    raise damage
                break
        if position < end:
            before_cut()
            os.ftruncate(fd, position)
        if sync or position < end:
            fsync_descriptor(fd)
    offsets, times = indexes.finished()
    for suffix, data in ((names.OFFSET_INDEX_SUFFIX, offsets), (names.TIME_INDEX_SUFFIX, times)):
        index = path.with_suffix(suffix)
        if sync or not _holds(index, data):
            replace_file(index, data, sync=sync)
    return RecoveredSegment(base_offset, next_offset, position, end - position, indexes.max_timestamp, damage)


def _holds(path: Path, data: bytes) -> bool:
    """True if the file holds just that: thousands of logs are checked at a start, and each new file costs a rename."""
    try:
        return path.stat().st_size == len(data) and (not data or path.read_bytes() == data)
    except FileNotFoundError:
        return False


def ordered_windows(
    fd: int,
    path: Path,
    base_offset: int,
    end: int,
    start: int = 0,
    buffer: Scratch | None = None,
) -> Iterator[tuple[Window, KafkalogError | None]]:
    """`header_windows` that end where offsets do not rise, too; errors say file and offset. Raises OffsetOverflow."""
    next_offset = base_offset
    for window, wrong in header_windows(DescriptorFile(fd), end, start, buffer):
        table = window.table
        good = in_order(table, base_offset, next_offset)
        if good < len(table):
            first, last = int(table[good, HeaderColumn.BASE_OFFSET]), int(table[good, HeaderColumn.LAST_OFFSET])
            position = int(table[good, HeaderColumn.POSITION])
            expected = int(table[good - 1, HeaderColumn.LAST_OFFSET]) + 1 if good else next_offset
            if expected <= first <= last:
                raise OffsetOverflow(path, base_offset, last, position)
            text = f"a batch of offsets {first} to {last} where {expected} or higher was to come"
            yield window.first(good), CorruptBatch(text, path=str(path), position=position, offset=expected)
            return
        if len(table):
            next_offset = int(table[-1, HeaderColumn.LAST_OFFSET]) + 1
        yield window, None if wrong is None else wrong.at(path=str(path), offset=next_offset)


def in_order(table: Table, base_offset: int, next_offset: int) -> int:
    """How many batches at the beginning of the table have rising offsets that an index of the segment can hold."""
    previous = np.empty(len(table), np.int64)
    previous[:1] = next_offset - 1
    previous[1:] = table[:-1, HeaderColumn.LAST_OFFSET]
    good = (table[:, HeaderColumn.BASE_OFFSET] > previous) & (
        table[:, HeaderColumn.LAST_OFFSET] >= table[:, HeaderColumn.BASE_OFFSET]
    )
    good &= table[:, HeaderColumn.LAST_OFFSET] <= base_offset + MAX_RELATIVE_OFFSET
    return len(good) if good.all() else int(np.argmin(good))


class IndexBuilder:
    """The entries that SegmentWriter would have written for the same batches."""

    def __init__(self, base_offset: int, interval: int) -> None:
        self._base_offset = base_offset
        self._interval = interval
        self._counted_from = 0  # position from which the bytes since the last entry are counted
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._last_time = NO_TIMESTAMP  # of the time index
        self._offset_entries: list[npt.NDArray[np.void]] = []
        self._time_entries: list[npt.NDArray[np.void]] = []

    def add(self, table: Table) -> None:
        n = len(table)
        running = np.maximum.accumulate(np.concatenate(([self.max_timestamp], table[:, HeaderColumn.MAX_TIMESTAMP])))
        grown = np.where(running[1:] > running[:-1], np.arange(n), -1)
        reached = np.maximum.accumulate(grown)  # row that holds the largest timestamp up to each row; -1: none here
        offsets = np.where(
            reached >= 0, table[np.maximum(reached, 0), HeaderColumn.LAST_OFFSET], self.max_timestamp_offset
        )
        positions: list[int] = table[:, HeaderColumn.POSITION].tolist()
        rows: list[int] = []
        row = bisect_right(positions, self._counted_from + self._interval)
        while row < n:
            rows.append(row)
            self._counted_from = positions[row]
            row = bisect_right(positions, self._counted_from + self._interval, row + 1)
        if rows:
            entries = np.empty(len(rows), offset_index.ENTRY_DTYPE)
            entries["relative_offset"] = table[rows, HeaderColumn.LAST_OFFSET] - self._base_offset
            entries["position"] = table[rows, HeaderColumn.POSITION]
            self._offset_entries.append(entries)
            timestamps = running[1:][rows]
            kept = timestamps > np.concatenate(([self._last_time], timestamps[:-1]))
            times = np.empty(int(kept.sum()), time_index.ENTRY_DTYPE)
            times["timestamp"] = timestamps[kept]
            times["relative_offset"] = offsets[rows][kept] - self._base_offset
            self._time_entries.append(times)
            self._last_time = max(self._last_time, int(timestamps[-1]))
        self.max_timestamp = int(running[-1])
        self.max_timestamp_offset = int(offsets[-1])

    def finished(self) -> tuple[bytes, bytes]:
        """(.index, .timeindex) of the closed segment."""
        times = b"".join(entries.tobytes() for entries in self._time_entries)
        if self.max_timestamp > self._last_time:
            last = (self.max_timestamp, self.max_timestamp_offset - self._base_offset)
            times += np.array(last, time_index.ENTRY_DTYPE).tobytes()
        return b"".join(entries.tobytes() for entries in self._offset_entries), times
