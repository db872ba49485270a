"""The `.lock` file of a log directory.

A log directory has one writer at a time: a broker (this one, or Apache Kafka, whose LogManager takes the same lock), or
a sink while it commits.

The lock is a POSIX record lock over the whole file, like Java's FileLock, so a broker in Python and one in Java exclude
each other. The kernel releases the lock when the process ends for any reason. POSIX locks do not exclude other threads
of the same process, and closing any descriptor of the file releases them. Therefore this process also keeps a table of
the locks that it holds.
"""

from __future__ import annotations

import fcntl
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kafkalog_spark.errors import LogDirLocked
from kafkalog_spark.format.names import LOCK_FILE
from kafkalog_spark.format.regular_file import open_regular

_held: set[tuple[int, int, str]] = set()  # (device, inode, file name) of each lock that this process holds
_held_lock = threading.Lock()


@dataclass(eq=False)
class LogDirLock:
    """Lock of one log directory, which is held from `acquire` until `release`."""

    _fd: int
    _key: tuple[int, int, str]

    @classmethod
    def acquire(cls, directory: str | os.PathLike[str], file_name: str = LOCK_FILE) -> Self:
        """Lock an existing directory without waiting.

        Args:
            directory: The log directory.
            file_name: Name of the locked file. Another name than Kafka's excludes only processes that use that name.

        Raises:
            LogDirLocked: If the directory is already locked.
            OSError: If the file cannot be opened.
        """
        stat = os.stat(directory)
        key = (stat.st_dev, stat.st_ino, file_name)
        with _held_lock:
            if key in _held:
                raise _lock_error(directory, "this process")
            fd = open_regular(Path(directory) / file_name, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # POSIX allows EACCES for a held lock, too
                os.close(fd)
                raise _lock_error(directory, "another process") from None
            except BaseException:
                os.close(fd)
                raise
            _held.add(key)
        return cls(fd, key)

    def release(self) -> None:
        """Release the lock. The file is kept, as in Kafka. Idempotent."""
        with _held_lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
                _held.discard(self._key)


def _lock_error(directory: str | os.PathLike[str], holder: str) -> LogDirLocked:
    return LogDirLocked(
        f"{holder} holds the lock of this log directory ({LOCK_FILE})",
        path=os.fspath(directory),
        hint="stop the other broker or sink, or give this one another log directory (log.dirs, --log-dir)",
    )
