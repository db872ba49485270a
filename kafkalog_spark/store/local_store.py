"""Files of this machine, or of what it has mounted.

Reads are preads into memory of our own. A mapped file would end the process with SIGBUS when a recovering broker
truncates it, and would count towards the worker's memory page by page.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from kafkalog_spark.format.atomic_file import open_regular, read_whole
from kafkalog_spark.format.names import DELETED_SUFFIX
from kafkalog_spark.store.interface import FileFacts, Listing, OpenFile

# The names in a local directory while a broker renames files in it.
#
# A listing is no moment's picture: the system hands names out piece by piece, and a file that is renamed from a
# place not yet reached to one already passed is in none of them. Compaction renames a `.log.swap` to `.log` exactly
# so, and what has not been listed would look like a gap that compaction has left: records would be lost without a
# word.

_QUIET_NS = 1_000_000_000
"""A directory that nobody has changed for so long is listed once: far above the clock's ticks, which times of
modification come in."""
_LISTINGS = 100
"""A swap takes milliseconds, and there is one in seconds: the second listing is like the first."""


def stable_listing(directory: str) -> list[str]:
    """Names in a directory; listed again until two listings agree where files may be being renamed. Raises OSError.

    `.deleted` files, whose coming and going tells nothing, may be missing.
    """
    before = os.stat(directory).st_mtime_ns
    listed = os.listdir(directory)
    for _ in range(_LISTINGS):
        after = os.stat(directory).st_mtime_ns
        if after == before and time.time_ns() - after > _QUIET_NS:
            break
        previous, listed = listed, os.listdir(directory)
        if _that_count(listed) == _that_count(previous):
            break
        before = after
    return listed


def _that_count(names: list[str]) -> set[str]:
    return {name for name in names if not name.endswith(DELETED_SUFFIX)}


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
        self._opened = os.fstat(self._fd)
        self.size = self._opened.st_size

    def has_changed(self) -> bool:
        try:
            now = os.stat(self._path)
        except OSError:
            return True
        then = self._opened
        return (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns) != (
            then.st_dev, then.st_ino, then.st_size, then.st_mtime_ns,
        )  # fmt: skip

    def expect(self, position: int, until: int) -> None:
        """The system reads ahead by itself."""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@dataclass(frozen=True)
class LocalStore:
    """This machine's file system: see Store."""

    remote = False

    def list(self, directory: str, after: str = "") -> Listing:
        names = stable_listing(directory)
        return Listing(
            [name for name in names if name > after], lambda name: os.path.isdir(os.path.join(directory, name))
        )

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        return LocalFile(path)

    def read_all(self, path: str, most: int) -> bytes:
        return read_whole(path, most)

    def exists(self, directory: str) -> bool:
        return os.path.exists(directory)


LOCAL = LocalStore()
