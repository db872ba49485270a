"""Store of the local file system, including mounted ones.

Files are read with pread and not mapped: a mapped file would end the process with SIGBUS when a recovering broker
truncates it, and its pages would count towards the memory of the worker.

A directory listing is not atomic. The system returns the names in several parts, and a listing may miss a file that is
renamed meanwhile under both its names. Compaction renames `.log.swap` to `.log`. A segment that is missing from a
listing looks like a gap that compaction has left, so its records would be missing without an error.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass

from kafkalog_spark.format.names import DELETED_SUFFIX
from kafkalog_spark.format.regular_file import open_regular, read_whole
from kafkalog_spark.store.interface import Buffer, FetchBlock, FileFacts, Listing, OpenFile

_QUIET_NS = 1_000_000_000
"""A directory that has not changed for this time is listed only once. Far longer than a tick of the file system's
clock."""
_LISTINGS = 100
"""Maximum number of listings in one call. Renames are short and rare, so two listings usually suffice."""


def stable_listing(directory: str) -> list[str]:
    """Return the names in a directory. Raises OSError.

    A directory that has changed recently is listed until two listings agree, apart from their `.deleted` files.
    """
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
    """Reads from a file descriptor that the caller opens and closes."""

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
    """A file open for reading. The constructor raises as `open_regular`."""

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
        """Do nothing: the operating system reads ahead."""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _version(facts: os.stat_result) -> tuple[int, int, int, int]:
    return facts.st_size, facts.st_mtime_ns, facts.st_ino, facts.st_dev


@dataclass(frozen=True)
class LocalStore:
    """Store of this machine's file system."""

    is_remote = False

    def list(self, directory: str, after: str = "") -> Listing:
        names = [name for name in stable_listing(directory) if name > after]
        return Listing(names, lambda name: os.path.isdir(os.path.join(directory, name)))

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        return LocalFile(path)

    def ranges(self, path: str, facts: FileFacts) -> FetchBlock:
        def fetch(begin: int, end: int) -> Buffer:
            with closing(LocalFile(path)) as file:  # opened for each call, because a LocalFile is not thread-safe
                return file.read(begin, end - begin)

        return fetch

    def read_all(self, path: str, max_bytes: int) -> bytes:
        return read_whole(path, max_bytes)

    def exists(self, directory: str) -> bool:
        return os.path.exists(directory)


LOCAL = LocalStore()
