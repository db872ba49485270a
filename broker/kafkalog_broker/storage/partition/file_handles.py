"""Log files open for reading, in a cache of bounded size, and ranges of their bytes."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from kafkalog_spark.format.regular_file import open_regular

MAX_OPEN_HANDLES = 512
"""Largest number of cached handles. Below the usual limit of 1,024 descriptors it leaves room for connections and for
segments that are being written."""
MAX_OPEN_WITH_RESPONSES = 2 * MAX_OPEN_HANDLES
"""Above this number, a response reads its bytes when it is created instead of keeping a descriptor until it is sent."""


def is_out_of_descriptors(error: BaseException) -> bool:
    """Return whether an error is EMFILE or ENFILE: transient, so the caller may try again."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class FileHandle:
    """Descriptor of a file. It is closed when the last reference to this object is gone.

    A reader therefore keeps the descriptor even if the handle is evicted from the cache or the file is removed.
    """

    __slots__ = ("fd",)
    open_now = 0  # number of open handles in this process
    _counting = threading.RLock()  # reentrant, because __del__ may run while its own thread holds the lock

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.fd = open_regular(path)
        with FileHandle._counting:
            FileHandle.open_now += 1

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            with FileHandle._counting:
                FileHandle.open_now -= 1

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes [position, position + size), fewer only at the end of the file. Raises OSError."""
        data = os.pread(self.fd, size, position)
        while len(data) < size:
            more = os.pread(self.fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data


@dataclass(slots=True, eq=False)
class FileSlice:
    """Bytes [position, position + size) of a file, which do not change. Keeps the file open even if it is removed."""

    handle: FileHandle
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """Return all bytes of the slice. Raises OSError."""
        return self.handle.read(self.position, self.size)

    def read_into(self, buffer: memoryview, at: int) -> int:
        """Fill `buffer` from byte `at` of the slice, and return the number of bytes; 0 only at the end of the file.

        Raises OSError.
        """
        left = self.size - at
        return os.preadv(self.handle.fd, [buffer[:left] if left < len(buffer) else buffer], self.position + at)


class FileHandles:
    """Cache of at most `max_open` handles; evicts the handle that was opened first. Thread-safe."""

    def __init__(self) -> None:
        self.max_open = MAX_OPEN_HANDLES
        self._lock = threading.Lock()
        self._open: OrderedDict[Hashable, FileHandle] = OrderedDict()

    def get(self, key: Hashable, path: str) -> FileHandle:
        """Return the handle of a file, opened if needed.

        Args:
            key: Names one file for good. A path does not, because a topic can be created again.

        Raises:
            OSError: If the file cannot be opened.
        """
        handle = self._open.get(key)
        if handle is not None:
            return handle
        handle = FileHandle(path)
        with self._lock:
            self._open[key] = handle
            while len(self._open) > self.max_open:
                self._open.popitem(last=False)
        return handle

    def forget(self, key: Hashable) -> None:
        """Remove a handle from the cache; it is closed when its last reader releases it."""
        with self._lock:
            self._open.pop(key, None)


_HANDLES = FileHandles()
"""Handles of all logs of this process. The underscore makes Python clear the variable before the module `os` when the
process ends; closing the handles needs `os`."""
