"""Staging area of a task on a disk."""

from __future__ import annotations

import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from kafkalog_spark.errors import JobEnded
from kafkalog_spark.format.fsync import fsync_file
from kafkalog_spark.format.regular_file import FILE_MODE, descriptor, write_all
from kafkalog_spark.sink.jobs import job_file
from kafkalog_spark.sink.local_directory import LocalDirectory

WRITE_BEHIND_BYTES = 16 << 20
"""Bytes that are appended between two flushes: large enough for long sequential writes."""


class LocalStage:
    """Staged files in a log directory. They are not kept open, because a process may open a limited number only."""

    piece_bytes = held_bytes = sys.maxsize  # a file becomes a whole segment, and is not held in memory

    def __init__(self, directory: LocalDirectory, job: str) -> None:
        self._log_dir = directory.log_dir
        self._job = job
        self._names: list[str] = []
        self._thread = ThreadPoolExecutor(1, "write-behind")
        self._flushing: Future[None] | None = None
        self._unflushed: dict[Path, int] = {}

    def begin(self, task: int, attempt: str, number: int) -> str:
        name = f"kafkalog.sink-{self._job}-{task}-{attempt}-{number}.log"
        os.close(os.open(self._log_dir / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        self._names.append(name)
        if not (self._log_dir / job_file(self._job)).exists():  # checked after the file was created: see jobs.py
            raise JobEnded(
                f"the write of this task has ended (job {self._job})",
                path=str(self._log_dir),
                hint="driver and executors must see the same directory under this path",
            )
        return name

    def append(self, name: str, data: memoryview) -> None:
        path = self._log_dir / name
        with descriptor(path, os.O_WRONLY | os.O_APPEND) as fd:
            write_all(fd, data)
        self._unflushed[path] = self._unflushed.get(path, 0) + len(data)
        if sum(self._unflushed.values()) >= WRITE_BEHIND_BYTES and (self._flushing is None or self._flushing.done()):
            self._wait_for_flush()
            self._flushing, self._unflushed = self._thread.submit(_flush, list(self._unflushed)), {}

    def _wait_for_flush(self) -> None:
        """Wait for the running flush. Raises its OSError."""
        flushing, self._flushing = self._flushing, None
        if flushing is not None:
            flushing.result()

    def finish(self, name: str) -> None:
        """Do nothing: the file is complete after the last append."""

    def close(self) -> None:
        """End the flushing thread. The commit flushes the remaining bytes."""
        self._thread.shutdown()
        self._wait_for_flush()

    def discard(self) -> None:
        with suppress(OSError):  # a failed flush does not matter, since the files are removed
            self.close()
        for name in self._names:
            (self._log_dir / name).unlink(missing_ok=True)


def _flush(paths: list[Path]) -> None:
    for path in paths:
        fsync_file(path)
