"""Files open for reading, a bounded number of them.

A handle is closed when nobody refers to it any more: a thread that reads from it keeps it open, whatever is evicted or
removed meanwhile, and no descriptor number is used again under a reader's hands.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable

from kafkalog_spark.log.format.durable import open_regular

MAX_OPEN = 512
"""Descriptors. Leaves room for connections and for segments being written under the usual limit of 1,024. A file that
was dropped is opened again in 5 us."""

MANY_OPEN = 2 * MAX_OPEN
"""Descriptors, of which as many as MAX_OPEN are held by responses that consumers have not taken yet: then those that
follow hold none."""


def is_passing(error: BaseException) -> bool:
    """Whether the process, or the host, only has too many files open at the moment: what was to be opened is as good as
    it was, and may be asked for again."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class FileHandle:
    """A read-only descriptor."""

    __slots__ = ("fd",)
    open_now = 0
    """How many there are in this process."""
    _counting = threading.RLock()  # __del__ may come at any time, also while this thread is counting

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
        """The bytes [position, position + size), fewer only at the end of the file."""
        data = os.pread(self.fd, size, position)
        while len(data) < size:
            more = os.pread(self.fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data


class FileSlice:
    """The bytes [position, position + size) of a file, read when they are needed. They must not change any more.

    len() is `size`. It holds the file open, also when retention removes it meanwhile.
    """

    __slots__ = ("handle", "position", "size")

    def __init__(self, handle: FileHandle, position: int, size: int) -> None:
        self.handle = handle
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """All of it. Raises OSError."""
        return self.handle.read(self.position, self.size)

    def read_into(self, buffer: memoryview, at: int) -> int:
        """Fill `buffer` with what begins `at` bytes past the slice's start; how many bytes came, 0 only at the end of
        the file. Raises OSError."""
        left = self.size - at
        return os.preadv(self.handle.fd, [buffer[:left] if left < len(buffer) else buffer], self.position + at)


class FileHandles:
    """At most `max_open` handles, the longest open ones dropped first. Thread-safe."""

    def __init__(self, max_open: int = MAX_OPEN) -> None:
        self._max_open = max_open
        self._lock = threading.Lock()
        self._open: OrderedDict[Hashable, FileHandle] = OrderedDict()

    def get(self, key: Hashable, path: str) -> FileHandle:
        """The handle of `key`, opened if need be. A key stands for one file for ever, which a path does not: a topic
        may be deleted and made again. Raises OSError."""
        handle = self._open.get(key)
        if handle is not None:
            return handle
        handle = FileHandle(path)
        with self._lock:
            self._open[key] = handle
            while len(self._open) > self._max_open:
                self._open.popitem(last=False)
        return handle

    def forget(self, key: Hashable) -> None:
        """The file is not needed any more."""
        with self._lock:
            self._open.pop(key, None)

    def __len__(self) -> int:
        return len(self._open)
