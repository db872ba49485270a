"""The time, passed in wherever it matters so that tests can set it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC: for what is compared with timestamps of records and files. Somebody may set it
        back, or forward."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment: for intervals and delays. Only ever rises, as time passes."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


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
        """Somebody sets the clock forward by `ms` milliseconds, or back (negative); no time passes."""
        self._now_ms += ms
        return self._now_ms

    def set(self, now_ms: int) -> None:
        """Let time pass until it is `now_ms`."""
        self.advance(now_ms - self._now_ms)
