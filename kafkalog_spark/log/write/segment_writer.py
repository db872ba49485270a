"""Writer of a segment: the .log file and its two indexes, byte for byte as Kafka 4.x writes them.

LogSegment.append decides for each batch (since KAFKA-806; before, for each append): if more than index.interval.bytes
were written since the last entry, the batch gets an offset index entry (its last offset, its position), and the time
index gets the largest timestamp so far if that has grown. So the first batch of a segment never gets an entry.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kafkalog_spark.errors import CorruptBatch, CorruptLog, SegmentFull, UnsupportedFormat
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.atomic_file import (
    FILE_MODE,
    fdatasync_descriptor,
    open_regular,
)
from kafkalog_spark.format.index_file import MAX_INDEX_SIZE, MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import MAX_SEGMENT_SIZE, NO_TIMESTAMP
from kafkalog_spark.format.offset_index import OffsetIndexWriter
from kafkalog_spark.format.time_index import TimeIndexWriter
from kafkalog_spark.log.write.encoded_batch import EncodedBatch
from kafkalog_spark.log.write.header_reader import end_of_closed_segment, header_at
from kafkalog_spark.log.write.segment_files import fsync_segment
from kafkalog_spark.log.write.segment_restamping import _FACTS, _PLACE
from kafkalog_spark.log.write.segment_roll import INDEX_INTERVAL_BYTES


@dataclass(eq=False)
class SegmentWriter:
    """Appends to one segment. Not thread safe: a segment has one writer. Make it with create or open_existing.

    Attributes: `base_offset`, `next_offset` (lowest offset the next batch may have), `size` (bytes of the .log),
    `first_timestamp` (ms, the first batch's largest; None while empty), `max_timestamp` and `offset_of_max_timestamp`
    (the largest so far and the last offset of its batch; -1 and the base offset while there is none).
    """

    _fd: int
    path: Path
    base_offset: int
    offset_index: OffsetIndexWriter
    time_index: TimeIndexWriter
    _interval: int

    def __post_init__(self) -> None:
        self._since_entry = 0  # starts at 0 when a segment is opened again, as in Kafka
        self.next_offset = self.base_offset
        self.size = 0
        self.first_timestamp: int | None = None
        self.max_timestamp = self.time_index.last_timestamp
        self.offset_of_max_timestamp = self.time_index.last_offset
        self._is_preallocated = False

    # ---- opening

    @classmethod
    def create(
        cls,
        directory: str | os.PathLike[str],
        base_offset: int,
        *,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        max_index_size: int = MAX_INDEX_SIZE,
    ) -> Self:
        """A new, empty segment. Raises FileExistsError when its .log is there already; on any error no file is left."""
        path = _log_path(directory, base_offset)
        with ExitStack() as undo:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            for suffix in (names.LOG_SUFFIX, names.TIME_INDEX_SUFFIX, names.OFFSET_INDEX_SUFFIX):
                undo.callback(path.with_suffix(suffix).unlink, missing_ok=True)
            undo.callback(os.close, fd)
            offset_index = OffsetIndexWriter(path.with_suffix(names.OFFSET_INDEX_SUFFIX), base_offset, max_index_size)
            undo.callback(offset_index.close)
            time_index = TimeIndexWriter(path.with_suffix(names.TIME_INDEX_SUFFIX), base_offset, max_index_size)
            undo.pop_all()
        return cls(fd, path, base_offset, offset_index, time_index, index_interval_bytes)

    @classmethod
    def open_existing(
        cls,
        directory: str | os.PathLike[str],
        base_offset: int,
        *,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        max_index_size: int = MAX_INDEX_SIZE,
    ) -> Self:
        """Go on with a segment that was closed cleanly. Its indexes are believed, as Kafka does then; headers after the
        last entry are read to find the end. Raises FileNotFoundError for a missing .log or index, CorruptBatch when the
        .log does not end with a whole batch: `recover_segment` is for such a segment."""
        path = _log_path(directory, base_offset)
        with ExitStack() as undo:
            fd = open_regular(path, os.O_RDWR)
            undo.callback(os.close, fd)
            offset_index = OffsetIndexWriter.open_existing(
                path.with_suffix(names.OFFSET_INDEX_SUFFIX), base_offset, max_index_size
            )
            undo.callback(offset_index.close)
            time_index = TimeIndexWriter.open_existing(
                path.with_suffix(names.TIME_INDEX_SUFFIX), base_offset, max_index_size
            )
            undo.callback(time_index.close)
            self = cls(fd, path, base_offset, offset_index, time_index, index_interval_bytes)
            self.size = os.fstat(fd).st_size
            if self.size:
                try:
                    self.first_timestamp = header_at(fd, 0, self.size).max_timestamp
                    self.next_offset = end_of_closed_segment(fd, base_offset, offset_index.last, self.size)
                except (CorruptLog, UnsupportedFormat) as error:
                    error.hint = error.hint or "recover the segment"
                    raise error.at(path=str(path)) from None
            undo.pop_all()
        return self

    # ---- writing

    @property
    def indexes_full(self) -> bool:
        """True when the next batch that is due for an index entry would find no room: roll before it."""
        return self.offset_index.is_full or self.time_index.is_full

    def append(self, batch: EncodedBatch) -> int:
        """Write one batch at the end; returns its position. Raises SegmentFull for a batch that does not fit (size,
        offset span, index), CorruptBatch for offsets that do not rise, OSError; then the segment is as before."""
        position, next_offset = self.size, self.next_offset
        data, header = batch
        if header.base_offset < next_offset or header.last_offset < header.base_offset:
            raise CorruptBatch(
                f"a batch of offsets {header.base_offset} to {header.last_offset} cannot follow {next_offset - 1}",
                path=str(self.path),
                offset=header.base_offset,
            )
        if position + len(data) > MAX_SEGMENT_SIZE or header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise SegmentFull(
                f"{len(data)} bytes up to offset {header.last_offset} do not fit: a segment holds {MAX_SEGMENT_SIZE} "
                f"bytes, and offsets up to {MAX_RELATIVE_OFFSET} above its base offset {self.base_offset}",
                path=str(self.path),
                position=position,
                offset=header.base_offset,
                hint="roll the segment before appending",
            )
        try:
            self._write(data, position)
            self.count(len(data), header.last_offset, header.max_timestamp)
        except BaseException:
            self._cut_behind_last()
            raise
        return position

    @property
    def room_for_batches(self) -> int:
        """Bytes of batches for which the indexes have room whatever their sizes are."""
        offsets, times = self.offset_index, self.time_index
        free = min(offsets.max_entries - offsets.entries, times.max_entries - 1 - times.entries)
        return (free - 1) * self._interval

    def append_all(self, data: bytes | memoryview, batches: Iterable[tuple[int, int, int]]) -> None:
        """Write batches, one after the other in `data`, with one call: (size, last offset, largest timestamp in ms) of
        each. Their offsets rise and they fit: in the .log, and by `room_for_batches`. Raises OSError; the segment ends
        with the last batch that was whole then."""
        try:
            self._write(data, self.size)
            for size, last_offset, max_timestamp in batches:
                self.count(size, last_offset, max_timestamp)
        except BaseException:
            self._cut_behind_last()
            raise

    def _cut_behind_last(self) -> None:
        """Take back what was written of a batch that was not counted."""
        os.ftruncate(self._fd, self.size)
        if self.offset_index.entries and self.offset_index.last_offset >= self.next_offset:
            self.offset_index.drop_last()

    def _write(self, data: bytes | memoryview, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        while written < len(data):  # a full disk writes a part first, then says so
            more = os.pwrite(self._fd, memoryview(data)[written:], position + written)
            if more == 0:
                raise OSError(errno.ENOSPC, "only a part of a batch could be written", str(self.path))
            written += more

    def count(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Take a batch, whose bytes lie at `size` already, into indexes and sums; nothing when an index refuses it."""
        grows = max_timestamp > self.max_timestamp
        largest, offset = (max_timestamp, last_offset) if grows else (self.max_timestamp, self.offset_of_max_timestamp)
        if self._since_entry > self._interval:
            self.offset_index.append(last_offset, self.size)
            self.time_index.maybe_append(largest, offset)
            self._since_entry = 0
        self.max_timestamp, self.offset_of_max_timestamp = largest, offset
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        self.size += size
        self._since_entry += size
        self.next_offset = last_offset + 1

    def preallocate(self, size: int) -> None:
        """Give the .log of an empty segment `size` bytes of zeros, as Kafka does with preallocate=true. They are cut
        off when the segment is rolled or closed; after a crash they are still there. Raises OSError."""
        os.ftruncate(self._fd, size)
        self._is_preallocated = True

    def on_become_inactive(self) -> None:
        """Finish the segment when the log rolls; idempotent. A preallocated .log is cut to its batches, both indexes to
        their entries; the largest timestamp goes into the time index, in the slot kept for it."""
        if self.max_timestamp > NO_TIMESTAMP:
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp, skip_full_check=True)
        self.offset_index.trim()
        self.time_index.trim()
        if self._is_preallocated:
            os.ftruncate(self._fd, self.size)
            self._is_preallocated = False

    def flush(self) -> None:
        """Put the bytes of .log and indexes on disk. The name of a new segment needs an fsync of its directory."""
        fsync_segment(self.path.parent, self.base_offset)

    def sync_data(self) -> None:
        """Put the bytes of the .log on disk, without the indexes: recovery builds those of the last segment again."""
        fdatasync_descriptor(self._fd)

    def close(self) -> None:
        """Close cleanly: indexes complete and trimmed. Does not flush. Idempotent."""
        if self._fd < 0:
            return
        try:
            self.on_become_inactive()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files as they are, as a crash would leave them. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        self.offset_index.close()
        self.time_index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _log_path(directory: str | os.PathLike[str], base_offset: int) -> Path:
    return Path(directory) / (names.segment_name(base_offset) + names.LOG_SUFFIX)


assert _PLACE.size == layout.LEADER_EPOCH_AT + 4
assert _FACTS.size == layout.MAX_TIMESTAMP_AT + 8
