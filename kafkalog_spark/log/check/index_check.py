"""Compares offset and time indexes with the batches, one header table at a time. No I/O.

An entry is correct if a reader can use it: reading from its position finds its offset, and no record up to its offset
has a larger timestamp. Kafka's releases differ in which of several correct entries they write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np

from kafkalog_spark.errors import CorruptIndex
from kafkalog_spark.format import offset_index, time_index
from kafkalog_spark.format.layout import NO_TIMESTAMP, HeaderColumn
from kafkalog_spark.log.check.finding import Fault
from kafkalog_spark.log.read.header_windows import HeaderTable


class _IndexCheck:
    """Compares one index file with the batches of its segment.

    Attributes:
        entries: Number of valid entries at the beginning of the file.
        padding: Number of zero bytes after the entries; 0 if the rest of the file is not all zeros.
        faults: Faults of the file by itself, without the batches.
    """

    _kind: ClassVar[str]
    _entry_size: ClassVar[int]

    def __init__(self, data: bytes, entries: int, base_offset: int, check: Callable[[bytes, int], None]) -> None:
        self.entries = entries
        after_entries = data[entries * self._entry_size :]
        self.padding = len(after_entries) if after_entries and not any(after_entries) else 0
        self.faults: list[Fault] = []
        self._next = 0
        try:
            check(data[: len(data) - self.padding], base_offset)
        except CorruptIndex as error:
            self.faults.append(Fault(error.what, error.position))

    def _fault(self, entry: int, offset: int, expected: str, got: str) -> Fault:
        return Fault(f"entry {entry} of the {self._kind}", entry * self._entry_size, offset, expected, got)


class OffsetIndexCheck(_IndexCheck):
    """Compares one .index file with the batches of its segment."""

    _kind, _entry_size = "offset index", offset_index.ENTRY_SIZE

    def __init__(self, data: bytes, base_offset: int) -> None:
        self._index = offset_index.parse_offset_index(data, base_offset)
        self._open_entry: tuple[int, int] | None = None
        """(number, offset) of an entry that covers several batches, until the last of them has been checked."""
        super().__init__(data, len(self._index), base_offset, offset_index.check_offset_index)

    def check_entries(self, table: HeaderTable, previous: int, begin: int) -> Iterator[Fault]:
        """Yield the faults of the entries that point into `table`.

        Args:
            table: Header table of the next batches.
            previous: Last offset before these batches.
            begin: Byte position of the first batch. Entries that point to earlier bytes point into damage; they are
                skipped.
        """
        index = self._index
        positions = table[:, HeaderColumn.POSITION]
        last = table[:, HeaderColumn.LAST_OFFSET]
        end = int(positions[-1] + table[-1, HeaderColumn.SIZE])
        slot = max(self._next, int(np.searchsorted(index.positions, begin, side="left")))
        stop = int(np.searchsorted(index.positions, end, side="left"))
        yield from self._check_open_entry(last, index.positions[slot] if slot < len(index) else end, positions)
        for entry in range(slot, stop):
            position, offset = int(index.positions[entry]), int(index.offsets[entry])
            row = int(np.searchsorted(positions, position))
            if row == len(positions) or positions[row] != position:
                yield self._fault(entry, offset, "a position where a batch begins", f"byte {position}, inside a batch")
                continue
            before = int(last[row - 1]) if row else previous
            if table[row, HeaderColumn.COUNT] < 0:  # the header of a wrapper does not have its first offset
                if not before < offset:
                    yield self._fault(entry, offset, f"an offset above {before} for byte {position}", str(offset))
                continue
            if offset < table[row, HeaderColumn.BASE_OFFSET]:
                yield self._fault(entry, offset, f"{int(last[row])} for byte {position}", str(offset))
            elif offset != last[row]:  # before Kafka 4.1, brokers wrote one entry for an append of several batches
                self._open_entry = (entry, offset)
                limit = int(index.positions[entry + 1]) if entry + 1 < len(index) else end
                yield from self._check_open_entry(last[row:], limit, positions[row:])
        self._next = max(slot, stop)

    def _check_open_entry(self, last: np.ndarray, limit: int, positions: np.ndarray) -> Iterator[Fault]:
        """Yield a fault if no batch that begins before byte `limit` ends with the offset of the open entry.

        The entry remains open if `last` does not reach its offset. last: last offsets of the next batches.
        """
        if self._open_entry is None or not len(last):
            return
        entry, offset = self._open_entry
        row = int(np.searchsorted(last, offset))
        if row < len(last):
            self._open_entry = None
            if last[row] != offset or positions[row] >= limit:
                expected = f"the last offset of a batch at or after byte {int(self._index.positions[entry])}"
                yield self._fault(entry, offset, expected, f"offset {offset}")

    def skip_damage(self) -> None:
        """Forget the open entry, because its last batch may be in the damaged bytes that follow."""
        self._open_entry = None

    def finish(self, end: int) -> Iterator[Fault]:
        """Yield a fault for each entry that points to byte `end` (the end of the good batches) or beyond."""
        for entry in range(self._next, len(self._index)):
            position, offset = int(self._index.positions[entry]), int(self._index.offsets[entry])
            yield self._fault(entry, offset, f"a position below byte {end}, the end of the log", f"byte {position}")
        if self._open_entry is not None:
            entry, offset = self._open_entry
            yield self._fault(entry, offset, "the last offset of a batch", f"offset {offset}, past the last batch")


class TimeIndexCheck(_IndexCheck):
    """Compares one .timeindex file with the batches of its segment.

    Attributes:
        largest: Largest timestamp so far, in ms.
        largest_offset: Last offset of the batch with that timestamp.
    """

    _kind, _entry_size = "time index", time_index.ENTRY_SIZE

    def __init__(self, data: bytes, base_offset: int) -> None:
        self._index = time_index.parse_time_index(data, base_offset)
        self.largest = NO_TIMESTAMP
        self.largest_offset = base_offset
        super().__init__(data, len(self._index), base_offset, time_index.check_time_index)

    def check_entries(self, table: HeaderTable) -> Iterator[Fault]:
        """Yield the faults of entries whose offset is in `table`, which directly follows the previous batches."""
        index = self._index
        last = table[:, HeaderColumn.LAST_OFFSET]
        running = np.maximum.accumulate(np.concatenate(([self.largest], table[:, HeaderColumn.MAX_TIMESTAMP])))[1:]
        stop = int(np.searchsorted(index.offsets, int(last[-1]), side="right"))
        rows = np.searchsorted(last, index.offsets[self._next : stop])
        for entry, row in enumerate(rows.tolist(), self._next):
            if index.timestamps[entry] != running[row]:
                expected = f"{int(running[row])}, the largest timestamp up to there"
                yield self._fault(entry, int(index.offsets[entry]), expected, str(index.timestamps[entry]))
        self._next = max(self._next, stop)
        if running[-1] > self.largest:
            self.largest = int(running[-1])
            self.largest_offset = int(last[int(np.argmax(running == self.largest))])

    def finish(self) -> Iterator[Fault]:
        """Yield the faults of a rolled segment: its last entry must have its largest timestamp."""
        for entry in range(self._next, len(self._index)):
            offset = int(self._index.offsets[entry])
            yield self._fault(entry, offset, "an offset of the segment", f"offset {offset}, past its last batch")
        last = self._index.last
        if self.largest > 0 and (last is None or last.timestamp != self.largest):
            yield Fault(
                "the last entry of the time index of a closed segment",
                max(len(self._index) - 1, 0) * time_index.ENTRY_SIZE,
                self.largest_offset,
                f"the largest timestamp {self.largest}",
                "no entry" if last is None else str(last.timestamp),
            )
