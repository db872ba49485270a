"""How far loading is, added up over the threads that recover."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple


class LoadProgress(NamedTuple):
    """Bytes: of the segments that recovery has to scan; nothing of it after a clean shutdown."""

    logs_done: int
    logs_total: int
    bytes_done: int
    bytes_total: int


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
