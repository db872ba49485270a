"""A clock for tests."""

from __future__ import annotations


class ManualClock:
    """A clock that stands still until it is set."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> int:
        """Let `ms` milliseconds pass and return the new time."""
        self._monotonic_ms += ms
        return self.jump(ms)

    def jump(self, ms: int) -> int:
        """Move wall-clock time by `ms` milliseconds (back if negative); monotonic time does not change."""
        self._now_ms += ms
        return self._now_ms

    def set(self, now_ms: int) -> None:
        """Let time pass until it is `now_ms`."""
        self.advance(now_ms - self._now_ms)
