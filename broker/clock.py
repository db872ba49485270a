"""The time, passed in wherever it matters so that tests can set it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> int:
        """Move on by `ms` milliseconds (negative: the clock was set back) and return the new time."""
        self._now_ms += ms
        return self._now_ms

    def set(self, now_ms: int) -> None:
        self._now_ms = now_ms
