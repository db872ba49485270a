"""Exponential backoff: how long to leave alone what failed."""

from __future__ import annotations


class Backoff:
    """Pauses from first_ms on, twice as long each time, up to most_ms. until_ms: when the last one ends. Times in ms of
    one monotonic clock."""

    def __init__(self, first_ms: int, most_ms: int) -> None:
        self.until_ms = 0
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._pause_ms = 0

    def failed(self, now_ms: int) -> int:
        """It failed again: the pause from now on."""
        self._pause_ms = min(self._pause_ms * 2, self._most_ms) or self._first_ms
        self.until_ms = now_ms + self._pause_ms
        return self._pause_ms

    def worked(self) -> None:
        """The next pause is a short one again."""
        self._pause_ms = 0
