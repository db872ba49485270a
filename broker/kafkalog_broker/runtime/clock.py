"""The time, passed in wherever it matters so that tests can set it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """ms since 1970, UTC: for what is compared with timestamps of records and files. Somebody may set it."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment: for intervals and delays. Only ever rises, as time passes."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
