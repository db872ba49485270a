"""The `.lock` file of a log directory: one writer a directory, a broker, ours or Apache Kafka (FileLock of LogManager),
or a sink while it commits.

Java's FileLock is a POSIX record lock over the whole file, and so is this one: the two exclude each other, and the
kernel drops the lock when the process ends, however it ends. Such a lock does not exclude its own process, and
closing any descriptor of the file gives it up, so a table of this process's locks goes with it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kafkalog_spark.errors import LogDirLocked
from kafkalog_spark.format.atomic_file import open_regular
from kafkalog_spark.format.names import LOCK_FILE

_held: set[tuple[int, int, str]] = set()  # (device, inode) of the directories locked by this process, and the file
_held_guard = threading.Lock()


@dataclass(eq=False)
class LogDirLock:
    """Held from `acquire` until `release`."""

    _fd: int
    _key: tuple[int, int, str]

    @classmethod
    def acquire(cls, directory: str | os.PathLike[str], file_name: str = LOCK_FILE) -> Self:
        """Lock the directory, which exists. Raises LogDirLocked at once when somebody has it, OSError. file_name: the
        file in it that is locked; another one than Kafka's excludes only those who take the same."""
        facts = os.stat(directory)
        key = (facts.st_dev, facts.st_ino, file_name)
        with _held_guard:
            if key in _held:
                raise _locked(directory, "this process")
            fd = open_regular(Path(directory) / file_name, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # POSIX allows EACCES for a held lock, too
                os.close(fd)
                raise _locked(directory, "another process") from None
            except BaseException:
                os.close(fd)
                raise
            _held.add(key)
        return cls(fd, key)

    def release(self) -> None:
        """Let others in. The file stays, as Kafka's does. Idempotent."""
        with _held_guard:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
                _held.discard(self._key)


def _locked(directory: str | os.PathLike[str], holder: str) -> LogDirLocked:
    return LogDirLocked(
        f"a broker in {holder} holds the lock of this log directory ({LOCK_FILE})",
        path=os.fspath(directory),
        hint="stop the other broker, or give this one another log directory (log.dirs, --log-dir)",
    )
