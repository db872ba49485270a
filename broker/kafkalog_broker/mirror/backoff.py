"""Exponential pauses after failures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Pause that starts at `_first_ms` and doubles with each failure, up to `_max_ms`.

    Attributes:
        until_ms: End of the last pause, in ms of a monotonic clock.
    """

    _first_ms: int
    _max_ms: int
    _pause_ms: int = 0
    until_ms: int = 0

    def record_failure(self, now_ms: int) -> int:
        """Begin the pause after a failure, and return its length in ms."""
        self._pause_ms = min(self._pause_ms * 2, self._max_ms) or self._first_ms
        self.until_ms = now_ms + self._pause_ms
        return self._pause_ms

    def reset(self) -> None:
        """Begin with the shortest pause again after the next failure."""
        self._pause_ms = 0
