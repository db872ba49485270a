"""Clocks. Code that needs the time gets a Clock as an argument, so that tests can set the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of the time."""

    def now_ms(self) -> int:
        """Return ms since 1970, UTC, for comparisons with timestamps of records and files. It may be set back."""

    def monotonic_ms(self) -> int:
        """Return ms since an arbitrary moment, for intervals and delays. Never decreases."""


class SystemClock:
    """The system's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
