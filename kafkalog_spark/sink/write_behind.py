"""Bring staged bytes to the disk while their task goes on: a commit then waits for little."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from kafkalog_spark.log.format.durable import fsync_file

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
