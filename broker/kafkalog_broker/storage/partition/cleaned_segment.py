"""The segment that the cleaner writes: files with the suffix `.cleaned`, and how they take the place of others.

The steps are those of LocalLog.replaceSegments. A crash between two of them does no harm, because of what the next
start does with the files that it finds (`names.live_segments`). A power cut can also undo renames that were not synced,
each independently of the others, so the directory is fsynced between the steps:

1. `.cleaned` files are written and synced. After a crash the next start removes them.
2. `publish`: they are renamed `.swap`, the lowest base offset last. While a `.cleaned` file is left, the next start
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
from kafkalog_spark.format.atomic_file import (
    FILE_MODE,
    descriptor,
    fsync_descriptor,
    fsync_directory,
    write_all,
)
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import MAX_SEGMENT_SIZE, HeaderColumn
from kafkalog_spark.format.transaction_index import AbortedTransaction, format_transaction
from kafkalog_spark.log.write.segment_recovery import IndexBuilder


class RetainedBatches(NamedTuple):
    """Bytes good until the next are asked for. batches: int64[n, 3] of size, last offset, largest timestamp (ms)."""

    data: memoryview | bytes
    batches: npt.NDArray[np.int64]


class CleanedSegment:
    """Written, then `finish`ed, then swapped in or `discard`ed. Existing files are overwritten. `size`: of the .log.
    `next_offset`: after the last batch."""

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

    def path(self, suffix: str, transient: str = names.CLEANED_SUFFIX) -> Path:
        return self.directory / (names.segment_name(self.base_offset) + suffix + transient)

    @property
    def max_timestamp(self) -> tuple[int, int]:
        return self._indexes.max_timestamp, self._indexes.max_timestamp_offset

    def has_room(self, more: RetainedBatches) -> bool:
        """True if neither the positions nor the offsets of the indexes overflow when `more` is appended."""
        last_offset = int(more.batches[-1, 1]) if len(more.batches) else self.base_offset
        return self.size + len(more.data) <= MAX_SEGMENT_SIZE and last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def append(self, data: memoryview | bytes, batches: npt.NDArray[np.int64]) -> None:
        """Write batches, int64[n, 3]: size, last offset, largest timestamp, in order. Raises SegmentFull, OSError."""
        if not len(batches):
            return
        last_offset = int(batches[-1, 1])
        if not self.has_room(RetainedBatches(data, batches)):
            raise SegmentFull(
                f"{len(data)} bytes up to offset {last_offset} do not fit after {self.size}",
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
        """Write bytes that no index is to know of; how many there were. Raises OSError."""
        write_all(self._fd, data)
        self.size += len(data)
        return len(data)

    def finish(self, modified_ns: int) -> None:
        """Write the indexes; everything is on disk on return. modified_ns: the .log's time of modification, that of
        the newest segment it replaces: retention goes by it where records have no timestamps. Raises OSError."""
        offset_index, time_index = self._indexes.finished()
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
        """Remove the files unless `publish` has begun; after that `withdraw` removes them."""
        self._close()
        if not self._is_swapping:
            with contextlib.suppress(OSError):  # the partition's directory may be gone
                for suffix in names.SEGMENT_SUFFIXES:
                    self.path(suffix).unlink(missing_ok=True)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    # ---- the swap

    def to_swap(self) -> None:
        self._is_swapping = True
        self._rename(names.CLEANED_SUFFIX, names.SWAP_SUFFIX)

    def to_cleaned(self) -> None:
        """Take `to_swap` back, also where it was interrupted."""
        for suffix in names.SEGMENT_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.path(suffix, names.SWAP_SUFFIX), self.path(suffix))
        self._is_swapping = False

    def to_live(self) -> None:
        self._rename(names.SWAP_SUFFIX, "")

    def _rename(self, old: str, new: str) -> None:
        for suffix in names.SEGMENT_SUFFIXES:
            if suffix != names.TRANSACTION_INDEX_SUFFIX or self.aborted:
                os.rename(self.path(suffix, old), self.path(suffix, new))


def holding(offset: int, pieces: Sequence[CleanedSegment]) -> CleanedSegment:
    """Return the segment that an offset belongs to. pieces: by base offset."""
    return pieces[bisect_right(pieces, offset, key=lambda piece: piece.base_offset) - 1]


def publish(pieces: Sequence[CleanedSegment]) -> None:
    """Rename finished segments `.swap`, by rising base offset the last first; on disk on return. Raises OSError."""
    lowest, *others = pieces
    for piece in reversed(others):
        piece.to_swap()
    if others:  # a lowest `.swap` without the others would replace more than it holds
        fsync_directory(lowest.directory)
    lowest.to_swap()
    fsync_directory(lowest.directory)


def withdraw(pieces: Sequence[CleanedSegment]) -> None:
    """Remove published segments that are not to replace anything, so that no start completes the replacement."""
    with contextlib.suppress(OSError):  # the partition's directory may be gone
        pieces[0].to_cleaned()
        fsync_directory(pieces[0].directory)
        for piece in pieces[1:]:
            piece.to_cleaned()
    for piece in pieces:
        piece.discard()
