"""Common parts of offset index and time index files: entries of a fixed size, appended to a preallocated file.

The index file of an active segment is preallocated with zeros to `segment.index.bytes`, and truncated to its entries
when the segment is rolled or closed (Kafka's AbstractIndex). After a crash the zeros are still there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptIndex, KafkalogError, SegmentFull
from kafkalog_spark.format.layout import LEGACY_MIN_SIZE, MAX_INT32
from kafkalog_spark.format.regular_file import OpenFile, open_regular

MAX_INDEX_SIZE = 10 * 1024 * 1024  # bytes; Kafka's default of segment.index.bytes
MAX_RELATIVE_OFFSET = 2**31 - 1
"""Offsets in an index are i32, relative to the base offset of the segment; so are positions."""
_READ_SIZE = 240 * 1024  # a multiple of both entry sizes (8 and 12 bytes), large enough for one read a usual index


def check_end(size: int, entry_size: int, index_name: str, relative: npt.NDArray[np.int64], base_offset: int) -> None:
    """Raise CorruptIndex if a file of `size` bytes ends within an entry, or has a last offset below the base offset.

    relative: Relative offsets of the entries, int64[n].
    """
    if size % entry_size:
        what = f"{index_name} has a multiple of {entry_size} bytes, this one has {size}"
        raise CorruptIndex(what, position=size - size % entry_size)
    if len(relative) and relative[-1] < 0:
        what = f"the last entry's offset {base_offset + int(relative[-1])} is below the base offset {base_offset}"
        raise CorruptIndex(what, position=size - entry_size)


def read_entries(path: str | os.PathLike[str], entry_size: int) -> bytes:
    """Read the entries of a file, see `read_index_entries`; empty if the file does not exist."""
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            return read_index_entries(lambda _, size: file.read(size), entry_size)
    except FileNotFoundError:
        return b""


def max_index_bytes(log_size: int, entry_size: int) -> int:
    """Return the largest possible size of an index's entries: a batch has one entry at most, and at least 26 bytes."""
    return max(MAX_INDEX_SIZE, log_size // LEGACY_MIN_SIZE[0] * entry_size)


def read_index_entries(read: Callable[[int, int], bytes], entry_size: int, max_bytes: int = MAX_INT32) -> bytes:
    """Read the entries of an index file, and stop at the first piece that ends in an entry of zeros, which is padding.

    Args:
        read: read(position, size) returns bytes of the file; called in order.
        entry_size: Bytes of an entry.
        max_bytes: Stop after about so many bytes (segment.index.bytes is an i32).
    """
    pieces: list[bytes] = []
    size = 0
    while size < max_bytes and (piece := read(size, _READ_SIZE)):
        pieces.append(piece)
        size += len(piece)
        if len(piece) < _READ_SIZE or not any(piece[-entry_size:]):
            break
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class IndexFile(OpenFile):
    """Index file with one writer, which appends entries, and trims the file before a clean close.

    Attributes:
        entries: Number of entries.
        max_entries: Number of entries for which the file has room.
    """

    ENTRY_SIZE: ClassVar[int]
    entries: int

    def __init__(self, path: str | os.PathLike[str], base_offset: int, max_index_size: int = MAX_INDEX_SIZE) -> None:
        """Create the file with zeros, of `max_index_size` bytes rounded down to whole entries, but at least one entry.

        An existing file is replaced, because an index can always be rebuilt from the .log. (With segment.index.bytes=4,
        which has no room for an entry, Kafka fails with "Invalid max index size".)
        """
        self._attach(path, base_offset, max_index_size, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.resize_to_max()

    @classmethod
    def open_existing(
        cls, path: str | os.PathLike[str], base_offset: int, max_index_size: int = MAX_INDEX_SIZE
    ) -> Self:
        """Open the index of an active segment for appending, after dropping entries from the first invalid one on.

        Raises FileNotFoundError if the file does not exist.
        """
        self = cls.__new__(cls)
        self._attach(path, base_offset, max_index_size, os.O_RDWR)
        try:
            self._set_entries(self._valid_entries())
            self.trim()
            self.resize_to_max()
        except BaseException:
            self.close()
            raise
        return self

    def _attach(self, path: str | os.PathLike[str], base_offset: int, max_index_size: int, flags: int) -> None:
        self.path = os.fspath(path)
        self.base_offset = base_offset
        self.max_index_size = max(max_index_size, self.ENTRY_SIZE)
        self._fd = open_regular(self.path, flags)
        self.max_entries = 0
        self._set_entries(0)

    def _valid_entries(self) -> int:
        """Return the number of entries at the beginning of the file that are sorted and not zero."""
        raise NotImplementedError

    def _set_entries(self, entries: int) -> None:
        """Set the number of entries, and load the last one."""
        raise NotImplementedError

    def _read(self, slot: int) -> bytes:
        return os.pread(self._fd, self.ENTRY_SIZE, slot * self.ENTRY_SIZE)

    def _write_next(self, entry: bytes) -> None:
        """Write an entry after the last one. The caller increments `entries`."""
        if os.pwrite(self._fd, entry, self.entries * self.ENTRY_SIZE) != self.ENTRY_SIZE:
            raise OSError(errno.ENOSPC, "only a part of an index entry could be written", self.path)

    def _refused(self, error: type[CorruptIndex | SegmentFull], what: str, offset: int) -> KafkalogError:
        hint = "roll the segment before appending" if error is SegmentFull else None
        return error(what, path=self.path, position=self.entries * self.ENTRY_SIZE, offset=offset, hint=hint)

    def _full(self, offset: int) -> KafkalogError:
        return self._refused(SegmentFull, f"the index is full with {self.entries} entries", offset)

    def drop_last(self) -> None:
        """Remove the last entry, and zero its bytes."""
        self._set_entries(self.entries - 1)
        self.trim()
        self.resize_to_max()

    def trim(self) -> None:
        """Truncate the file after its last entry. The index is full then, until `resize_to_max`."""
        os.ftruncate(self._fd, self.entries * self.ENTRY_SIZE)
        self.max_entries = self.entries

    def resize_to_max(self) -> None:
        """Preallocate the file again. The added zeros are sparse, and take no space on disk."""
        self.max_entries = max(self.max_index_size // self.ENTRY_SIZE, self.entries)
        os.ftruncate(self._fd, self.max_entries * self.ENTRY_SIZE)
