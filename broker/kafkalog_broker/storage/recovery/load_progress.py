"""Progress of loading the logs at the start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple


class LoadProgress(NamedTuple):
    """Progress of all loading threads together. The bytes are those of segments that recovery scans."""

    logs_done: int
    logs_total: int
    bytes_done: int
    bytes_total: int

    @property
    def percent(self) -> int:
        """Share of the bytes that are scanned; share of the logs that are loaded if there are no bytes to scan."""
        done, total = (self.bytes_done, self.bytes_total) if self.bytes_total else (self.logs_done, self.logs_total)
        # The share may exceed 100 %, because a segment can be larger than when it was listed.
        return min(100 * done // total, 100) if total else 100

    def __str__(self) -> str:
        return (
            f"{self.percent} %, {self.bytes_done / 1e6:.0f} of {self.bytes_total / 1e6:.0f} MB, "
            f"{self.logs_done} of {self.logs_total} logs"
        )


class ProgressWatch:
    """Sums up the progress of several threads."""

    def __init__(self, logs: int, size: int, progress: Callable[[LoadProgress], None]) -> None:
        """Start at zero.

        Args:
            size: Number of bytes to scan.
            progress: Called after each window of bytes and each log, by one thread at a time.
        """
        self._guard = threading.Lock()
        self._state = LoadProgress(0, logs, 0, size)
        self._progress = progress

    def bytes_done(self, count: int) -> None:
        """Count scanned bytes; any thread."""
        with self._guard:
            self._state = self._state._replace(bytes_done=self._state.bytes_done + count)
            self._progress(self._state)

    def log_done(self) -> None:
        """Count a loaded log; any thread."""
        with self._guard:
            self._state = self._state._replace(logs_done=self._state.logs_done + 1)
            self._progress(self._state)
