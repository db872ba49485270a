"""Writer of a segment: the .log file and its two indexes, byte for byte as Kafka 4.x writes them.

LogSegment.append decides for each batch (since KAFKA-806; before, for each append): if more than index.interval.bytes
were written since the last entry, the batch gets an offset index entry (its last offset, its position), and the time
index gets the largest timestamp so far if that has grown. So the first batch of a segment never gets an entry.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np

from kafkalog_spark.errors import CorruptBatch, CorruptLog, SegmentFull, UnsupportedFormat
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.atomic_file import (
    FILE_MODE,
    descriptor,
    fdatasync_descriptor,
    open_regular,
    replace_file,
)
from kafkalog_spark.format.layout import MAX_SEGMENT_SIZE, NO_TIMESTAMP, H
from kafkalog_spark.format.offset_index import MAX_INDEX_SIZE, MAX_RELATIVE_OFFSET, OffsetIndexWriter
from kafkalog_spark.format.time_index import TimeIndexWriter
from kafkalog_spark.log.write.encoded_batch import EncodedBatch
from kafkalog_spark.log.write.header_reader import end_of_closed_segment, header_at
from kafkalog_spark.log.write.segment_files import fsync_segment
from kafkalog_spark.log.write.segment_recovery import IndexBuilder
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


# Give finished batches their place in a log: offsets, leader epoch, indexes.
#
# Whoever wrote them did not know where their records would go. Base offset and leader epoch of a v2 batch lie outside
# its CRC, so they are overwritten where they are; nothing else changes.

# the first 16 bytes of a batch: base offset, length (as it was), leader epoch
_PLACE = struct.Struct(">qii")
assert _PLACE.size == layout.LEADER_EPOCH_AT + 4
# what the indexes need of a batch: length, magic, last offset delta, max timestamp
_FACTS = struct.Struct(">8xi4xb6xi8xq")
assert _FACTS.size == layout.MAX_TIMESTAMP_AT + 8
_AT_ONCE = 32 << 10  # batches whose index entries are made together


def restamp_segment(path: Path, base_offset: int, leader_epoch: int) -> int:
    """Number the records of the v2 batches in `path` from `base_offset` on, without gaps; returns the next offset.
    `path` ends in .log and may have any stem; the indexes get the same one, and are overwritten. Nothing is synced. It
    can be done again, to the same offsets or others: a crash in between does no harm. The file is mapped: nobody else
    may cut it meanwhile. Raises CorruptBatch for a file that does not consist of whole v2 batches, OSError."""
    stamper = PieceStamper(base_offset, leader_epoch)
    try:
        with descriptor(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as log:
            stamper.stamp_in_place(log)
    except CorruptBatch as error:
        raise error.at(path=str(path)) from None
    for suffix, data in zip((names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX), stamper.indexes(), strict=True):
        replace_file(path.with_suffix(suffix), data, sync=False)
    return stamper.next_offset


class PieceStamper:
    """Numbers the records of one segment's pieces, each of whole v2 batches. `next_offset`, `size`: after the last."""

    def __init__(self, base_offset: int, leader_epoch: int) -> None:
        self.next_offset = base_offset
        self.size = 0
        self._leader_epoch = leader_epoch
        self._indexes = IndexBuilder(base_offset, INDEX_INTERVAL_BYTES)

    def stamp(self, piece: bytes | bytearray | memoryview) -> bytearray:
        """A copy of the piece with its place. Raises CorruptBatch, with a position in the piece."""
        data = bytearray(piece)
        self.stamp_in_place(data)
        return data

    def stamp_in_place(self, data: mmap.mmap | bytearray) -> None:
        batches = self._stamped(data)
        while facts := list(islice(batches, _AT_ONCE)):
            sizes, last_offsets, timestamps = np.array(facts, np.int64).T
            table = np.zeros((len(facts), len(H)), np.int64)
            table[:, H.POSITION] = self.size + np.cumsum(sizes) - sizes
            table[:, H.LAST_OFFSET] = last_offsets
            table[:, H.MAX_TIMESTAMP] = timestamps
            self._indexes.add(table)
            self.size += int(sizes.sum())

    def _stamped(self, data: mmap.mmap | bytearray) -> Iterator[tuple[int, int, int]]:
        """(bytes, last offset, largest timestamp in ms) of each batch, when its header is done."""
        position, end = 0, len(data)
        while position < end:
            left = end - position
            if left < layout.BATCH_OVERHEAD:
                raise CorruptBatch(f"{left} bytes are left, too few for a batch", position=position)
            length, magic, last_offset_delta, max_timestamp = _FACTS.unpack_from(data, position)
            if magic != 2:
                raise CorruptBatch(f"a batch of magic {magic} cannot be renumbered", position=position)
            size = length + layout.LOG_OVERHEAD
            if not layout.BATCH_OVERHEAD <= size <= left or last_offset_delta < 0:
                raise CorruptBatch(f"a batch of {size} bytes begins with {left} bytes left", position=position)
            _PLACE.pack_into(data, position, self.next_offset, length, self._leader_epoch)
            last_offset = self.next_offset + last_offset_delta
            position += size
            self.next_offset = last_offset + 1
            yield size, last_offset, max_timestamp

    def indexes(self) -> tuple[bytes, bytes]:
        """(.index, .timeindex) of the segment when it is closed. Once, after the last piece."""
        return self._indexes.finished()
