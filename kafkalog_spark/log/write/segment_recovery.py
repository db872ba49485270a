"""Recovery of a segment: its batches are checked and its indexes rebuilt (Kafka: LogSegment.recover)."""

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
from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.fsync import fsync_descriptor
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import NO_TIMESTAMP, HeaderColumn
from kafkalog_spark.format.regular_file import descriptor
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.read.header_windows import Table, Window, header_windows
from kafkalog_spark.log.write.segment_roll import INDEX_INTERVAL_BYTES
from kafkalog_spark.store.local_store import DescriptorFile


class OffsetOverflow(Exception):
    """A segment has offsets too far above its base offset for an index entry (LogSegmentOffsetOverflowException).

    The segment must be split.
    """

    def __init__(self, path: Path, base_offset: int, last_offset: int, position: int) -> None:
        super().__init__(
            f"{path} has a batch up to offset {last_offset} at byte {position}, but an index of this segment ends at "
            f"offset {base_offset + MAX_RELATIVE_OFFSET}"
        )
        self.base_offset = base_offset


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """Result of `recover_segment`.

    Attributes:
        base_offset: Base offset of the segment.
        next_offset: Offset after the last batch.
        size: Size of the .log after the recovery, in bytes.
        truncated_bytes: Number of bytes removed from the end of the .log.
        largest_timestamp: In ms, or -1 if no batch has a timestamp.
        damage: Error of the first bad batch, or None if all batches are good.
    """

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
    """Check every batch of a segment, truncate the .log after the last good one, and rebuild .index and .timeindex.

    A batch is good if it is whole, its CRC is valid, its offsets increase and `first_bad` accepts it. The first bad
    batch and everything after it is removed, as in Kafka. The indexes are those of a segment that was closed cleanly. A
    truncation is fsynced before the function returns, so removed bytes cannot reappear behind later appends.

    Args:
        directory: Partition directory.
        base_offset: Base offset of the segment.
        index_interval_bytes: Bytes of batches between two index entries (index.interval.bytes).
        on_window: Called with each window of good batches, in order, before the indexes are written. The bytes of a
            window are valid only during the call.
        on_bytes: Called with the number of good bytes of each window.
        first_bad: Returns the row of the first bad batch of a window with the reason, or None if all are good.
        before_cut: Called before the .log is truncated.
        may_cut: False raises the damage instead of truncating; no file is then changed.
        sync: True fsyncs the .log and both indexes.

    Raises:
        OffsetOverflow: If the segment must be split; no file is then changed.
        KafkalogError: If a batch is bad and `may_cut` is False.
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
    """Return True if the file has this content already, to save a rename: a start recovers many logs."""
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
    """Yield the windows of `header_windows` up to the first batch whose offsets do not increase.

    Yields:
        The good batches of a window, and the error of the batch after them, with path and offset, or None.

    Raises:
        OffsetOverflow: If an offset is too far above `base_offset` for an index entry.
    """
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
            text = f"a batch has offsets {first} to {last}, expected {expected} or higher"
            yield window.first(good), CorruptBatch(text, path=str(path), position=position, offset=expected)
            return
        if len(table):
            next_offset = int(table[-1, HeaderColumn.LAST_OFFSET]) + 1
        yield window, None if wrong is None else wrong.at(path=str(path), offset=next_offset)


def in_order(table: Table, base_offset: int, next_offset: int) -> int:
    """Return the number of leading rows with increasing offsets that fit into an index of the segment.

    Args:
        table: Batch headers, one a row, with the columns of `HeaderColumn`.
        base_offset: Base offset of the segment.
        next_offset: Lowest base offset that the first row may have.
    """
    previous = np.empty(len(table), np.int64)
    previous[:1] = next_offset - 1
    previous[1:] = table[:-1, HeaderColumn.LAST_OFFSET]
    good = (table[:, HeaderColumn.BASE_OFFSET] > previous) & (
        table[:, HeaderColumn.LAST_OFFSET] >= table[:, HeaderColumn.BASE_OFFSET]
    )
    good &= table[:, HeaderColumn.LAST_OFFSET] <= base_offset + MAX_RELATIVE_OFFSET
    return len(good) if good.all() else int(np.argmin(good))


class IndexBuilder:
    """Builder of the index entries that `SegmentWriter` writes for the same batches, from tables of headers.

    Attributes:
        max_timestamp: Largest timestamp so far in ms, or -1.
        max_timestamp_offset: Last offset of the batch with that timestamp.
    """

    def __init__(self, base_offset: int, interval: int) -> None:
        self._base_offset = base_offset
        self._interval = interval
        self._counted_from = 0  # position from which the bytes since the last entry are counted
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._last_time = NO_TIMESTAMP  # timestamp of the last entry of the time index
        self._offset_entries: list[npt.NDArray[np.void]] = []
        self._time_entries: list[npt.NDArray[np.void]] = []

    def add(self, table: Table) -> None:
        """Add the batches of `table`, which follow those of the previous call."""
        n = len(table)
        running = np.maximum.accumulate(np.concatenate(([self.max_timestamp], table[:, HeaderColumn.MAX_TIMESTAMP])))
        grown = np.where(running[1:] > running[:-1], np.arange(n), -1)
        reached = np.maximum.accumulate(
            grown
        )  # row of the largest timestamp up to each row; -1 if it is in an earlier table
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
            is_larger = timestamps > np.concatenate(([self._last_time], timestamps[:-1]))
            times = np.empty(int(is_larger.sum()), time_index.ENTRY_DTYPE)
            times["timestamp"] = timestamps[is_larger]
            times["relative_offset"] = offsets[rows][is_larger] - self._base_offset
            self._time_entries.append(times)
            self._last_time = max(self._last_time, int(timestamps[-1]))
        self.max_timestamp = int(running[-1])
        self.max_timestamp_offset = int(offsets[-1])

    def finished(self) -> tuple[bytes, bytes]:
        """Return the bytes of .index and .timeindex of the closed segment."""
        times = b"".join(entries.tobytes() for entries in self._time_entries)
        if self.max_timestamp > self._last_time:
            last = (self.max_timestamp, self.max_timestamp_offset - self._base_offset)
            times += np.array(last, time_index.ENTRY_DTYPE).tobytes()
        return b"".join(entries.tobytes() for entries in self._offset_entries), times
