"""Progress of loading the logs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple


class LoadProgress(NamedTuple):
    """Progress of all threads together. Bytes: of the segments that recovery has to scan."""

    logs_done: int
    logs_total: int
    bytes_done: int
    bytes_total: int

    @property
    def percent(self) -> int:
        """Share of the bytes; of the logs where there is nothing to scan."""
        done, total = (self.bytes_done, self.bytes_total) if self.bytes_total else (self.logs_done, self.logs_total)
        # A log that is cut has bytes that are never scanned, and one that grew while it was listed has more.
        return min(100 * done // total, 100) if total else 100

    def __str__(self) -> str:
        return (
            f"{self.percent} %, {self.bytes_done / 1e6:.0f} of {self.bytes_total / 1e6:.0f} MB, "
            f"{self.logs_done} of {self.logs_total} logs"
        )


class ProgressWatch:
    """progress: called after each window of bytes and each log, by one thread at a time."""

    def __init__(self, logs: int, size: int, progress: Callable[[LoadProgress], None]) -> None:
        self._guard = threading.Lock()
        self._state = LoadProgress(0, logs, 0, size)
        self._progress = progress

    def bytes_done(self, count: int) -> None:
        with self._guard:
            self._state = self._state._replace(bytes_done=self._state.bytes_done + count)
            self._progress(self._state)

    def log_done(self) -> None:
        with self._guard:
            self._state = self._state._replace(logs_done=self._state.logs_done + 1)
            self._progress(self._state)
