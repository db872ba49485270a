"""Builder of the index entries of a segment from tables of batch headers."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.format import offset_index, time_index
from kafkalog_spark.format.layout import NO_TIMESTAMP, HeaderColumn
from kafkalog_spark.log.read.header_windows import HeaderTable


class SegmentIndexes(NamedTuple):
    """Content of the .index and .timeindex of a closed segment."""

    offset_index: bytes
    time_index: bytes


class IndexBuilder:
    """Builder of the index entries that `SegmentWriter` would write for the same batches.

    Args:
        base_offset: Base offset of the segment.
        interval: Bytes of batches between two index entries (index.interval.bytes).

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

    def add(self, table: HeaderTable) -> None:
        """Add the batches of `table`, which must follow those of the previous call."""
        # Largest timestamp up to each row, and the last offset of the batch that has it. `largest` begins with the
        # value before the first row. `row_of_largest` is -1 while that value is not exceeded.
        largest = np.maximum.accumulate(np.concatenate(([self.max_timestamp], table[:, HeaderColumn.MAX_TIMESTAMP])))
        row_if_larger = np.where(largest[1:] > largest[:-1], np.arange(len(table)), -1)
        row_of_largest = np.maximum.accumulate(row_if_larger)
        offsets = np.where(
            row_of_largest >= 0,
            table[np.maximum(row_of_largest, 0), HeaderColumn.LAST_OFFSET],
            self.max_timestamp_offset,
        )
        # Rows with an entry: the first one that begins more than `interval` bytes after the previous entry.
        positions: list[int] = table[:, HeaderColumn.POSITION].tolist()
        rows: list[int] = []
        row = bisect_right(positions, self._counted_from + self._interval)
        while row < len(positions):
            rows.append(row)
            self._counted_from = positions[row]
            row = bisect_right(positions, self._counted_from + self._interval, row + 1)
        if rows:
            entries = np.empty(len(rows), offset_index.ENTRY_DTYPE)
            entries["relative_offset"] = table[rows, HeaderColumn.LAST_OFFSET] - self._base_offset
            entries["position"] = table[rows, HeaderColumn.POSITION]
            self._offset_entries.append(entries)
            timestamps = largest[1:][rows]
            is_larger = timestamps > np.concatenate(([self._last_time], timestamps[:-1]))
            times = np.empty(int(is_larger.sum()), time_index.ENTRY_DTYPE)
            times["timestamp"] = timestamps[is_larger]
            times["relative_offset"] = offsets[rows][is_larger] - self._base_offset
            self._time_entries.append(times)
            self._last_time = max(self._last_time, int(timestamps[-1]))
        self.max_timestamp = int(largest[-1])
        self.max_timestamp_offset = int(offsets[-1])

    def build(self) -> SegmentIndexes:
        """Return the indexes of the closed segment, after the last batch was added."""
        times = b"".join(entries.tobytes() for entries in self._time_entries)
        if self.max_timestamp > self._last_time:
            last = (self.max_timestamp, self.max_timestamp_offset - self._base_offset)
            times += np.array(last, time_index.ENTRY_DTYPE).tobytes()
        return SegmentIndexes(b"".join(entries.tobytes() for entries in self._offset_entries), times)
