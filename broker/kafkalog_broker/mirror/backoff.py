"""Exponential pauses after failures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Exponential pauses after failures: `_first_ms`, doubled with each failure up to `_max_ms`.

    Attributes:
        until_ms: End of the last pause, in ms of a monotonic clock.
    """

    _first_ms: int
    _max_ms: int
    _pause_ms: int = 0
    until_ms: int = 0

    def failed(self, now_ms: int) -> int:
        """Return the pause from now on."""
        self._pause_ms = min(self._pause_ms * 2, self._max_ms) or self._first_ms
        self.until_ms = now_ms + self._pause_ms
        return self._pause_ms

    def worked(self) -> None:
        """Reset the next pause to the first one."""
        self._pause_ms = 0
