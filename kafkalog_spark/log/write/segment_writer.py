"""Writer of a segment: the .log file and its two indexes, byte for byte as Kafka 4.x writes them.

Index entries follow Kafka's LogSegment.append, which decides for each batch (before KAFKA-806, for each append). If
more than index.interval.bytes were written since the last entry, the offset index gets the last offset and the position
of the batch, and the time index gets the largest timestamp so far, provided that it has grown. Therefore the first
batch of a segment never has an entry.
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
from kafkalog_spark.format import names
from kafkalog_spark.format.fsync import fdatasync_descriptor
from kafkalog_spark.format.index_file import MAX_INDEX_SIZE, MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import MAX_SEGMENT_SIZE, NO_TIMESTAMP
from kafkalog_spark.format.offset_index import OffsetIndexWriter
from kafkalog_spark.format.regular_file import FILE_MODE, open_regular
from kafkalog_spark.format.time_index import TimeIndexWriter
from kafkalog_spark.log.write.encoded_batch import EncodedBatch
from kafkalog_spark.log.write.header_reader import end_of_closed_segment, header_at
from kafkalog_spark.log.write.segment_files import fsync_segment
from kafkalog_spark.log.write.segment_roll import INDEX_INTERVAL_BYTES


@dataclass(eq=False)
class SegmentWriter:
    """The only writer of one segment; not thread-safe. Construct it with `create` or `open_existing`.

    Attributes:
        base_offset: Base offset of the segment.
        next_offset: Lowest base offset that the next batch may have.
        size: Bytes of batches in the .log.
        first_timestamp: Largest timestamp of the first batch in ms, or None if the segment is empty.
        max_timestamp: Largest timestamp of the segment in ms, or -1 if no batch has a timestamp.
        offset_of_max_timestamp: Last offset of the batch with `max_timestamp`, or the base offset if there is none.
    """

    _fd: int
    path: Path
    base_offset: int
    offset_index: OffsetIndexWriter
    time_index: TimeIndexWriter
    _interval: int

    def __post_init__(self) -> None:
        self._since_entry = 0  # bytes since the last index entry; Kafka, too, starts with 0 when it reopens a segment
        self.next_offset = self.base_offset
        self.size = 0
        self.first_timestamp: int | None = None
        self.max_timestamp = self.time_index.last_timestamp
        self.offset_of_max_timestamp = self.time_index.last_offset
        self._is_preallocated = False

    @classmethod
    def create(
        cls,
        directory: str | os.PathLike[str],
        base_offset: int,
        *,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        max_index_size: int = MAX_INDEX_SIZE,
    ) -> Self:
        """Create the files of a new, empty segment and return their writer.

        Args:
            directory: Partition directory.
            base_offset: Base offset of the segment, which names the files.
            index_interval_bytes: Bytes of batches between two index entries (index.interval.bytes).
            max_index_size: Largest size of each index in bytes (segment.index.bytes).

        Raises:
            FileExistsError: If the .log exists already.
            OSError: If a file cannot be created; the files created before are removed.
        """
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
        """Open a segment that was closed cleanly, to append to it.

        The indexes are trusted, as Kafka does after a clean shutdown. Only the headers after the last index entry are
        read, to find the next offset. After an unclean shutdown call `recover_segment` first.

        Raises:
            FileNotFoundError: If the .log or an index is missing.
            CorruptLog: If the .log does not end with a whole batch.
            UnsupportedFormat: If a batch has an unknown magic.
            OSError: If a file cannot be opened or read.
        """
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

    @property
    def are_indexes_full(self) -> bool:
        """True if an index has no room for another entry, so that the segment must be rolled before the next batch."""
        return self.offset_index.is_full or self.time_index.is_full

    def append(self, batch: EncodedBatch) -> int:
        """Append one batch. On any error the segment is unchanged.

        Returns:
            The byte position of the batch in the .log.

        Raises:
            SegmentFull: If the .log, the offset range of the segment or an index has no room for the batch.
            CorruptBatch: If the base offset is below `next_offset`, or above the last offset.
            OSError: If the batch cannot be written.
        """
        position, next_offset = self.size, self.next_offset
        data, header = batch
        if header.base_offset < next_offset or header.last_offset < header.base_offset:
            raise CorruptBatch(
                f"a batch of offsets {header.base_offset} to {header.last_offset} cannot follow offset "
                f"{next_offset - 1}",
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
            self.count_batch(len(data), header.last_offset, header.max_timestamp)
        except BaseException:
            self._undo_uncounted_write()
            raise
        return position

    @property
    def room_for_batches(self) -> int:
        """Number of bytes that can be appended before an index is full, whatever the sizes of the batches."""
        offsets, times = self.offset_index, self.time_index
        free = min(offsets.max_entries - offsets.entries, times.max_entries - 1 - times.entries)
        return (free - 1) * self._interval

    def append_all(self, data: bytes | memoryview, batches: Iterable[tuple[int, int, int]]) -> None:
        """Append several batches with one write.

        The caller ensures that offsets increase, that the .log has room, and that `data` is at most `room_for_batches`
        long.

        Args:
            data: The batches, one after the other.
            batches: Size in bytes, last offset and largest timestamp in ms of each batch.

        Raises:
            OSError: If the batches cannot be written; the segment then ends after the last counted batch.
        """
        try:
            self._write(data, self.size)
            for size, last_offset, max_timestamp in batches:
                self.count_batch(size, last_offset, max_timestamp)
        except BaseException:
            self._undo_uncounted_write()
            raise

    def _undo_uncounted_write(self) -> None:
        """Remove the bytes and the index entry of a batch for which `_write` or `count_batch` failed."""
        os.ftruncate(self._fd, self.size)
        if self.offset_index.entries and self.offset_index.last_offset >= self.next_offset:
            self.offset_index.drop_last()

    def _write(self, data: bytes | memoryview, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        while written < len(data):  # on a full disk the first call writes a part, and only the next one fails
            more = os.pwrite(self._fd, memoryview(data)[written:], position + written)
            if more == 0:
                raise OSError(errno.ENOSPC, "only a part of a batch could be written", str(self.path))
            written += more

    def count_batch(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Update indexes, offsets and timestamps for a batch whose bytes were already written at the end of the .log.

        Args:
            size: Size of the batch in bytes.
            last_offset: Last offset of the batch.
            max_timestamp: Largest timestamp of the batch in ms.

        Raises:
            SegmentFull: If an index is full; the attributes are then unchanged.
        """
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
        """Extend the .log of an empty segment to `size` zero bytes, as Kafka does with preallocate=true.

        Rolling or closing the segment truncates the .log to its batches. After a crash the zeros remain.

        Raises:
            OSError: If the file cannot be extended.
        """
        os.ftruncate(self._fd, size)
        self._is_preallocated = True

    def on_become_inactive(self) -> None:
        """Complete the indexes when the log rolls (Kafka: LogSegment.onBecomeInactiveSegment). Idempotent.

        The largest timestamp is added to the time index, in the slot reserved for it. Both indexes are truncated to
        their entries, and a preallocated .log to its batches.
        """
        if self.max_timestamp > NO_TIMESTAMP:
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp, skip_full_check=True)
        self.offset_index.trim()
        self.time_index.trim()
        if self._is_preallocated:
            os.ftruncate(self._fd, self.size)
            self._is_preallocated = False

    def flush(self) -> None:
        """Fsync the .log and the indexes. If the segment is new, the caller must also fsync its directory."""
        fsync_segment(self.path.parent, self.base_offset)

    def sync_data(self) -> None:
        """Sync only the .log. That is enough for the last segment, whose indexes a recovery rebuilds."""
        fdatasync_descriptor(self._fd)

    def close(self) -> None:
        """Complete and trim the indexes, then close the files without a flush. Idempotent."""
        if self._fd < 0:
            return
        try:
            self.on_become_inactive()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files without completing the indexes, so that they are in the state after a crash. Idempotent."""
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
