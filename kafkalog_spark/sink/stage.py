"""Where a task puts what it encodes: staged files in the log directory, or staged objects (bucket_stage)."""

from __future__ import annotations

import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from kafkalog_spark.errors import JobEnded, KafkalogError
from kafkalog_spark.format.atomic_file import FILE_MODE, descriptor, fsync_file, write_all
from kafkalog_spark.sink import staging
from kafkalog_spark.sink.local_target import find_topics_unlocked, unwritable

# Bring staged bytes to the disk while their task goes on: a commit then waits for little.

WRITE_BEHIND_BYTES = 16 << 20
"""Bytes of a file that wait before they are flushed: large enough for the disk to work in long runs."""


class WriteBehind:
    """Flushes files in a thread of its own. An error that the disk reports is raised by the next call."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None
        self._waiting: dict[Path, int] = {}

    def wrote(self, path: Path, size: int) -> None:
        """`size` more bytes lie in a file. Raises OSError."""
        self._waiting[path] = self._waiting.get(path, 0) + size
        if sum(self._waiting.values()) < WRITE_BEHIND_BYTES or not self._is_idle():
            return
        paths, self._waiting = list(self._waiting), {}
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "write-behind")
        self._running = self._thread.submit(_flush, paths)

    def close(self) -> None:
        """Wait for what is being flushed. What was not flushed yet is the commit's matter. Raises OSError."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._is_idle()

    def _is_idle(self) -> bool:
        if self._running is None:
            return True
        if not self._running.done():
            return False
        running, self._running = self._running, None
        running.result()
        return True


def _flush(paths: list[Path]) -> None:
    for path in paths:
        fsync_file(path)


class Stage(Protocol):
    """The staged files of one task attempt. All methods but `error` raise OSError."""

    held_bytes: int
    """Of all files that are begun and not finished: a task finishes some when there are more."""

    def file_bytes(self, segment_bytes: int) -> int:
        """Bytes of the largest file, for segments of that size."""

    def topics(self) -> dict[str, list[int]]:
        """{topic: its partitions that lie in the log directory, sorted}."""

    def begin(self, task: int, attempt: str, number: int) -> str:
        """Begin a file; its name, for all other calls. Raises JobEnded."""

    def append(self, name: str, data: memoryview) -> None:
        """Write at its end. `data` is free for others on return."""

    def finish(self, name: str) -> None:
        """Nothing follows."""

    def close(self) -> None:
        """Wait for what is under way: finished files are there on return."""

    def discard(self) -> None:
        """Remove all of it, also after an error."""

    def error(self, error: OSError) -> KafkalogError:
        """The sentence for an OSError."""


class LocalStage:
    """Files in a log directory of this machine. Not kept open: a process may open only so many."""

    held_bytes = sys.maxsize  # they are not in memory

    def __init__(self, log_dir: Path, job: str) -> None:
        self._log_dir = log_dir
        self._job = job
        self._names: list[str] = []
        self._write_behind = WriteBehind()

    def file_bytes(self, segment_bytes: int) -> int:
        """A file becomes a segment, perhaps with small neighbours."""
        return segment_bytes

    def topics(self) -> dict[str, list[int]]:
        """See Stage."""
        return find_topics_unlocked(self._log_dir)

    def begin(self, task: int, attempt: str, number: int) -> str:
        """See Stage."""
        name = staging.staged_file(self._job, task, attempt, number)
        os.close(os.open(self._log_dir / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        self._names.append(name)
        if not staging.job_lives(self._log_dir, self._job):  # looked for after the file was made: see staging
            raise JobEnded(
                f"the write that this task belongs to is over (job {self._job})",
                path=str(self._log_dir),
                hint="driver and executors must see the same directory under this path",
            )
        return name

    def append(self, name: str, data: memoryview) -> None:
        """See Stage."""
        path = self._log_dir / name
        with descriptor(path, os.O_WRONLY | os.O_APPEND) as fd:
            write_all(fd, data)
        self._write_behind.wrote(path, len(data))

    def finish(self, name: str) -> None:
        """Nothing is to be done."""

    def close(self) -> None:
        """See Stage."""
        self._write_behind.close()

    def discard(self) -> None:
        """See Stage."""
        with suppress(OSError):  # the files go, so does what the disk said of them
            self._write_behind.close()
        for name in self._names:
            (self._log_dir / name).unlink(missing_ok=True)

    def error(self, error: OSError) -> KafkalogError:
        """See Stage."""
        return unwritable(self._log_dir, error)
