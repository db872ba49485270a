"""The segment that the cleaner writes: files with the suffix `.cleaned`, and how they take the place of others.

The order of the renames is what makes a kill at any instant harmless (LocalLog.replaceSegments):

1. `.cleaned` files are written and synced. Killed here, the next start removes them.
2. They become `.swap`, the .log first. While one `.cleaned` is left, the next start removes all of them.
3. The old segments become `.deleted`. From here on the next start finishes the swap.
4. The `.swap` files lose the suffix, the .log first.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import SegmentFull
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import FILE_MODE, descriptor, write_all
from kafkalog_spark.format.layout import MAX_SEGMENT_SIZE, H
from kafkalog_spark.format.offset_index import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.transaction_index import AbortedTransaction, format_transaction
from kafkalog_spark.log.write.segment_recovery import IndexBuilder


class RetainedBatches(NamedTuple):
    """Bytes that stay, good until the next one is asked for; the batches in them, int64[n, 3]: size, last offset,
    largest timestamp (ms) of each."""

    data: memoryview | bytes
    batches: npt.NDArray[np.int64]


class CleanedSegment:
    """Being written, then `finish`ed, then swapped in or `discard`ed. Files of that name are overwritten.

    Attributes: `size` (bytes of the .log), `max_timestamp` (ms, -1) and `max_timestamp_offset`, `aborted`.
    """

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = 0
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
        """(largest timestamp in ms or -1, last offset of its batch)."""
        return self._indexes.max_timestamp, self._indexes.max_timestamp_offset

    def append(self, data: memoryview | bytes, batches: npt.NDArray[np.int64]) -> None:
        """Write batches. batches: int64[n, 3]: size, last offset, largest timestamp of each, in order.

        Raises SegmentFull, OSError.
        """
        if not len(batches):
            return
        last_offset = int(batches[-1, 1])
        if self.size + len(data) > MAX_SEGMENT_SIZE or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise SegmentFull(
                f"{len(data)} bytes up to offset {last_offset} do not fit after {self.size}",
                path=str(self.path(names.LOG_SUFFIX)),
                hint="lower segment.bytes of the topic",
            )
        table = np.zeros((len(batches), len(H)), np.int64)
        table[:, H.POSITION] = self.size + np.cumsum(batches[:, 0]) - batches[:, 0]
        table[:, H.LAST_OFFSET] = batches[:, 1]
        table[:, H.MAX_TIMESTAMP] = batches[:, 2]
        write_all(self._fd, data)
        self._indexes.add(table)
        self.size += len(data)

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
                os.fsync(fd)
        os.utime(self._fd, ns=(modified_ns, modified_ns))
        os.fsync(self._fd)
        self._close()

    def discard(self) -> None:
        """Remove the files, unless their swap has begun: what that left, the next start makes whole. It also removes
        what cannot be removed here."""
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
        """`.cleaned` becomes `.swap`. Raises OSError."""
        self._is_swapping = True
        self._rename(names.CLEANED_SUFFIX, names.SWAP_SUFFIX)

    def to_live(self) -> None:
        """`.swap` goes. Raises OSError."""
        self._rename(names.SWAP_SUFFIX, "")

    def _rename(self, old: str, new: str) -> None:
        for suffix in names.SEGMENT_SUFFIXES:
            if suffix != names.TRANSACTION_INDEX_SUFFIX or self.aborted:
                os.rename(self.path(suffix, old), self.path(suffix, new))
