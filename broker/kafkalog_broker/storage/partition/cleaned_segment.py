"""Segment that the cleaner writes, with the suffix `.cleaned`, and the steps by which it replaces other segments.

The steps are those of Kafka's `LocalLog.replaceSegments`. A crash between two steps is harmless, because the next start
completes or undoes the replacement, depending on the files in the directory (`names.live_segments`). A power failure
can undo any rename that was not synced, so the directory is fsynced between the steps:

1. `.cleaned` files are written and synced. After a crash the next start removes them.
2. `publish`: they are renamed `.swap`, the lowest base offset last. While a `.cleaned` file remains, the next start
   removes it and all `.swap` files above it.
3. The old segments are renamed `.deleted`. From here on the next start completes the replacement.
4. `to_live`: the `.swap` files lose the suffix.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import SegmentFull
from kafkalog_spark.format import names
from kafkalog_spark.format.fsync import fsync_descriptor, fsync_directory
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import MAX_SEGMENT_SIZE, HeaderColumn
from kafkalog_spark.format.regular_file import FILE_MODE, descriptor, write_all
from kafkalog_spark.format.time_index import TimestampOffset
from kafkalog_spark.format.transaction_index import AbortedTransaction, format_transaction
from kafkalog_spark.log.write.index_builder import IndexBuilder


class RetainedBatches(NamedTuple):
    """Batches that are retained by a cleaning.

    Attributes:
        data: Their bytes; valid only until the next batches are read.
        batches: int64[n, 3]: size, last offset, largest timestamp in ms.
    """

    data: memoryview | bytes
    batches: npt.NDArray[np.int64]


class CleanedSegment:
    """Segment that is written, finished, and then swapped in or discarded. Existing files are overwritten.

    Attributes:
        size: Size of the .log in bytes.
        next_offset: Offset after the last batch.
        aborted: Entries for its transaction index.
    """

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = 0
        self.next_offset = base_offset
        self.aborted: list[AbortedTransaction] = []
        self._is_swapping = False
        self._indexes = IndexBuilder(base_offset, index_interval_bytes)
        for suffix in names.SEGMENT_SUFFIXES:
            self.path(suffix).unlink(missing_ok=True)
        self._fd = os.open(self.path(names.LOG_SUFFIX), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)

    def path(self, suffix: str, transient_suffix: str = names.CLEANED_SUFFIX) -> Path:
        return self.directory / (names.segment_name(self.base_offset) + suffix + transient_suffix)

    @property
    def max_timestamp(self) -> TimestampOffset:
        """Largest timestamp, and the last offset of its batch."""
        return TimestampOffset(self._indexes.max_timestamp, self._indexes.max_timestamp_offset)

    def has_room(self, more: RetainedBatches) -> bool:
        """Return whether `more` can be appended without an overflow of the positions or offsets in the indexes."""
        last_offset = int(more.batches[-1, 1]) if len(more.batches) else self.base_offset
        return self.size + len(more.data) <= MAX_SEGMENT_SIZE and last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def append(self, data: memoryview | bytes, batches: npt.NDArray[np.int64]) -> None:
        """Append batches.

        Args:
            data: The batches' bytes.
            batches: int64[n, 3]: size, last offset, largest timestamp in ms.

        Raises:
            SegmentFull: If they do not fit; see `has_room`.
            OSError: If the file cannot be written.
        """
        if not len(batches):
            return
        last_offset = int(batches[-1, 1])
        if not self.has_room(RetainedBatches(data, batches)):
            raise SegmentFull(
                f"{len(data)} bytes up to offset {last_offset} do not fit after the first {self.size} bytes",
                path=str(self.path(names.LOG_SUFFIX)),
                hint="lower segment.bytes of the topic",
            )
        table = np.zeros((len(batches), len(HeaderColumn)), np.int64)
        table[:, HeaderColumn.POSITION] = self.size + np.cumsum(batches[:, 0]) - batches[:, 0]
        table[:, HeaderColumn.LAST_OFFSET] = batches[:, 1]
        table[:, HeaderColumn.MAX_TIMESTAMP] = batches[:, 2]
        write_all(self._fd, data)
        self._indexes.add(table)
        self.size += len(data)
        self.next_offset = last_offset + 1

    def append_unread(self, data: bytes) -> int:
        """Append bytes that are not indexed, and return their number. Raises OSError."""
        write_all(self._fd, data)
        self.size += len(data)
        return len(data)

    def finish(self, modified_ns: int) -> None:
        """Write the indexes, and sync all files to disk.

        Args:
            modified_ns: Modification time for the .log, that of the newest replaced segment. Retention uses it for
                records without timestamps.

        Raises:
            OSError: If a file cannot be written.
        """
        offset_index, time_index = self._indexes.build()
        contents = [(names.OFFSET_INDEX_SUFFIX, offset_index), (names.TIME_INDEX_SUFFIX, time_index)]
        if self.aborted:
            contents.append((names.TRANSACTION_INDEX_SUFFIX, b"".join(map(format_transaction, self.aborted))))
        for suffix, content in contents:
            with descriptor(self.path(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
                write_all(fd, content)
                fsync_descriptor(fd)
        os.utime(self._fd, ns=(modified_ns, modified_ns))
        fsync_descriptor(self._fd)
        self._close()

    def discard(self) -> None:
        """Remove the files, unless `publish` has begun; then `withdraw` removes them."""
        self._close()
        if not self._is_swapping:
            with contextlib.suppress(OSError):  # the partition's directory may be gone
                for suffix in names.SEGMENT_SUFFIXES:
                    self.path(suffix).unlink(missing_ok=True)

    def _close(self) -> None:
        fd = self._fd
        self._fd = -1
        if fd >= 0:
            os.close(fd)

    def to_swap(self) -> None:
        """Rename the files from `.cleaned` to `.swap`. Raises OSError."""
        self._is_swapping = True
        self._rename(names.CLEANED_SUFFIX, names.SWAP_SUFFIX)

    def to_cleaned(self) -> None:
        """Undo `to_swap`, even if it was interrupted. Raises OSError."""
        for suffix in names.SEGMENT_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.path(suffix, names.SWAP_SUFFIX), self.path(suffix))
        self._is_swapping = False

    def to_live(self) -> None:
        """Rename the files from `.swap` to their plain names. Raises OSError."""
        self._rename(names.SWAP_SUFFIX, "")

    def _rename(self, old: str, new: str) -> None:
        for suffix in names.SEGMENT_SUFFIXES:
            if suffix != names.TRANSACTION_INDEX_SUFFIX or self.aborted:
                os.rename(self.path(suffix, old), self.path(suffix, new))


def segment_containing(offset: int, pieces: Sequence[CleanedSegment]) -> CleanedSegment:
    """Return the segment that `offset` belongs to. `pieces` are ordered by base offset."""
    return pieces[bisect_right(pieces, offset, key=lambda piece: piece.base_offset) - 1]


def publish(pieces: Sequence[CleanedSegment]) -> None:
    """Rename finished segments from `.cleaned` to `.swap`, the one with the lowest base offset last.

    The renames are durable when the function returns. `pieces` are ordered by base offset. Raises OSError.
    """
    lowest, *others = pieces
    for piece in reversed(others):
        piece.to_swap()
    if others:  # the lowest `.swap` alone would replace segments whose records it does not have
        fsync_directory(lowest.directory)
    lowest.to_swap()
    fsync_directory(lowest.directory)


def withdraw(pieces: Sequence[CleanedSegment]) -> None:
    """Undo `publish`, so that no later start completes the replacement, and remove the files.

    Only while all replaced segments have their plain names.
    """
    with contextlib.suppress(OSError):  # the partition's directory may be gone
        pieces[0].to_cleaned()
        fsync_directory(pieces[0].directory)
        for piece in pieces[1:]:
            piece.to_cleaned()
    for piece in pieces:
        piece.discard()
