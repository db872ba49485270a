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
from kafkalog_spark.format.atomic_file import OpenFile, open_regular
from kafkalog_spark.format.layout import LEGACY_MIN_SIZE, MAX_INT32

MAX_INDEX_SIZE = 10 * 1024 * 1024  # bytes; Kafka's default of segment.index.bytes
MAX_RELATIVE_OFFSET = 2**31 - 1
"""Offsets in an index are i32, relative to the base offset of the segment; so are positions."""
_READ_SIZE = 240 * 1024  # a multiple of both entry sizes (8 and 12 bytes), large enough for one read a usual index


def check_end(size: int, entry_size: int, kind: str, relative: npt.NDArray[np.int64], base_offset: int) -> None:
    """Raise CorruptIndex for a file of `size` bytes that ends within an entry, or with one below the base offset."""
    if size % entry_size:
        what = f"{kind} has a multiple of {entry_size} bytes, this one has {size}"
        raise CorruptIndex(what, position=size - size % entry_size)
    if len(relative) and relative[-1] < 0:
        what = f"the last entry's offset {base_offset + int(relative[-1])} is below the base offset {base_offset}"
        raise CorruptIndex(what, position=size - entry_size)


def read_entries(path: str | os.PathLike[str], entry_size: int) -> bytes:
    """As entries_of; empty when there is no such file."""
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            return entries_of(lambda _, size: file.read(size), entry_size)
    except FileNotFoundError:
        return b""


def most_index_bytes(log_size: int, entry_size: int) -> int:
    """How many bytes of an index may be entries: each of them is about a batch of the .log, of 26 bytes at least."""
    return max(MAX_INDEX_SIZE, log_size // LEGACY_MIN_SIZE[0] * entry_size)


def entries_of(read: Callable[[int, int], bytes], entry_size: int, most: int = MAX_INT32) -> bytes:
    """An index file's bytes, at most about `most` (segment.index.bytes is an i32), up to the first piece that ends in
    an entry of zeros: the rest is padding, up to 10 MiB. read: the bytes at (position, size), asked in order."""
    pieces: list[bytes] = []
    size = 0
    while size < most and (piece := read(size, _READ_SIZE)):
        pieces.append(piece)
        size += len(piece)
        if len(piece) < _READ_SIZE or not any(piece[-entry_size:]):
            break
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class IndexFile(OpenFile):
    """An index file that one writer appends to, and trims before a clean close. max_entries: how many have room."""

    ENTRY_SIZE: ClassVar[int]
    entries: int

    def __init__(self, path: str | os.PathLike[str], base_offset: int, max_index_size: int = MAX_INDEX_SIZE) -> None:
        """Make the file, empty, with zeros up to `max_index_size` bytes rounded down to whole entries, in place of one
        that is there: an index can always be built again from the .log. There is room for one entry at least:
        segment.index.bytes may be 4, with which Kafka cannot make a segment ("Invalid max index size")."""
        self._attach(path, base_offset, max_index_size, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.resize_to_max()

    @classmethod
    def open_existing(
        cls, path: str | os.PathLike[str], base_offset: int, max_index_size: int = MAX_INDEX_SIZE
    ) -> Self:
        """Open an active segment's index, up to its first bad entry, with room to go on. Raises FileNotFoundError."""
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
        """How many entries at the beginning of the file are sorted and not zero."""
        raise NotImplementedError

    def _set_entries(self, entries: int) -> None:
        """Take the first `entries` entries as the index, and remember the last of them."""
        raise NotImplementedError

    def _read(self, slot: int) -> bytes:
        return os.pread(self._fd, self.ENTRY_SIZE, slot * self.ENTRY_SIZE)

    def _write_next(self, entry: bytes) -> None:
        """Write after the last entry, without counting it."""
        if os.pwrite(self._fd, entry, self.entries * self.ENTRY_SIZE) != self.ENTRY_SIZE:
            raise OSError(errno.ENOSPC, "only a part of an index entry could be written", self.path)

    def _refused(self, error: type[CorruptIndex | SegmentFull], what: str, offset: int) -> KafkalogError:
        hint = "roll the segment before appending" if error is SegmentFull else None
        return error(what, path=self.path, position=self.entries * self.ENTRY_SIZE, offset=offset, hint=hint)

    def _full(self, offset: int) -> KafkalogError:
        return self._refused(SegmentFull, f"the index is full with {self.entries} entries", offset)

    def drop_last(self) -> None:
        """Take the last entry back; its bytes are erased too."""
        self._set_entries(self.entries - 1)
        self.trim()
        self.resize_to_max()

    def trim(self) -> None:
        """Cut the file after its last entry. From then on the index is full, until `resize_to_max`."""
        os.ftruncate(self._fd, self.entries * self.ENTRY_SIZE)
        self.max_entries = self.entries

    def resize_to_max(self) -> None:
        """Give the file its preallocated size again; what is added is zeros and takes no room on disk."""
        self.max_entries = max(self.max_index_size // self.ENTRY_SIZE, self.entries)
        os.ftruncate(self._fd, self.max_entries * self.ENTRY_SIZE)
