"""Waiting for somebody else, with an end."""

from __future__ import annotations

import time
from collections.abc import Callable

_STEP_SECONDS = 0.02  # commits take milliseconds to seconds


class Patience:
    """`wait` sleeps a moment and says whether there is time left. The clock starts at the first call."""

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._end: float | None = None

    def wait(self) -> bool:
        if self._end is None:
            self._end = self._clock() + self.seconds
        if self._clock() >= self._end:
            return False
        self._sleep(_STEP_SECONDS)
        return True
