"""Files of this machine, or of what it has mounted.

Reads are preads into memory of our own. A mapped file would end the process with SIGBUS when a recovering broker
truncates it, and would count towards the worker's memory page by page.

A listing is not atomic: the system returns names piece by piece, and a file that is renamed from a position not yet
reached to one already passed is in none of them. Compaction renames a `.log.swap` to `.log` in this way. A segment that
is missing from a listing would look like a gap that compaction left: its records would be lost without an error.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass

from kafkalog_spark.format.atomic_file import open_regular, read_whole
from kafkalog_spark.format.names import DELETED_SUFFIX
from kafkalog_spark.store.interface import Buffer, FetchBlock, FileFacts, Listing, OpenFile

_QUIET_NS = 1_000_000_000
"""A directory that nobody has changed for so long is listed once: far above the clock's ticks, which times of
modification come in."""
_LISTINGS = 100
"""A swap takes milliseconds, and there is one in seconds: the second listing is like the first."""


def stable_listing(directory: str) -> list[str]:
    """Names in a directory, listed again until two listings agree where files may be being renamed. `.deleted` files,
    whose coming and going tells nothing, may be missing. Raises OSError."""
    before = os.stat(directory).st_mtime_ns
    listed = os.listdir(directory)
    for _ in range(_LISTINGS):
        after = os.stat(directory).st_mtime_ns
        if after == before and time.time_ns() - after > _QUIET_NS:
            break
        previous, listed = listed, os.listdir(directory)
        if all(name.endswith(DELETED_SUFFIX) for name in {*listed} ^ {*previous}):
            break
        before = after
    return listed


class DescriptorFile:
    """Reads of a file descriptor that somebody else opened and closes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        while 0 < len(data) < size:
            more = os.pread(self._fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def read_into(self, position: int, target: memoryview) -> int:
        filled = 0
        while filled < len(target):
            count = os.preadv(self._fd, [target[filled:]], position + filled)
            if count == 0:
                break
            filled += count
        return filled


class LocalFile(DescriptorFile):
    """A file open for reading. Raises as open_regular."""

    def __init__(self, path: str) -> None:
        self._path = path
        super().__init__(open_regular(path))
        self._opened = _version(os.fstat(self._fd))
        self.size = self._opened[0]

    def has_changed(self) -> bool:
        try:
            return _version(os.stat(self._path)) != self._opened
        except OSError:
            return True

    def expect(self, position: int, until: int) -> None:
        """The system reads ahead by itself."""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _version(facts: os.stat_result) -> tuple[int, int, int, int]:
    return facts.st_size, facts.st_mtime_ns, facts.st_ino, facts.st_dev


@dataclass(frozen=True)
class LocalStore:
    """This machine's file system: see Store."""

    remote = False

    def list(self, directory: str, after: str = "") -> Listing:
        names = [name for name in stable_listing(directory) if name > after]
        return Listing(names, lambda name: os.path.isdir(os.path.join(directory, name)))

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        return LocalFile(path)

    def ranges(self, path: str, facts: FileFacts) -> FetchBlock:
        def fetch(begin: int, end: int) -> Buffer:
            with closing(LocalFile(path)) as file:  # opened for each: one file is for one thread
                return file.read(begin, end - begin)

        return fetch

    def read_all(self, path: str, most: int) -> bytes:
        return read_whole(path, most)

    def exists(self, directory: str) -> bool:
        return os.path.exists(directory)


LOCAL = LocalStore()
