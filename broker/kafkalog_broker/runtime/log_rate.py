"""Rate limit for log lines that clients can cause."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

BURST_LINES = 200  # enough for a restarted fleet of clients with one wrong setting

LINES_PER_S = 10  # about 1.5 MB of log in an hour, which is enough to identify the client


class LogRate:
    """Token bucket in front of a logger; suppressed lines are counted and reported. Not thread-safe."""

    def __init__(
        self,
        logger: logging.Logger,
        *,
        burst_lines: int = BURST_LINES,
        lines_per_s: float = LINES_PER_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """
        Args:
            logger: Where lines are written.
            burst_lines: Capacity of the bucket.
            lines_per_s: Rate at which the bucket refills.
            clock: Monotonic seconds.
        """
        self._logger = logger
        self._burst_lines = burst_lines
        self._lines_per_s = lines_per_s
        self._clock = clock
        self._tokens: float = burst_lines
        self._refilled_at = clock()
        self._suppressed = 0

    def log(self, level: int, line: str, *arguments: object) -> None:
        """Write a line or count it as suppressed. A line of a disabled level uses no token."""
        if not self._logger.isEnabledFor(level):
            return
        now = self._clock()
        self._tokens = min(self._burst_lines, self._tokens + (now - self._refilled_at) * self._lines_per_s)
        self._refilled_at = now
        if self._tokens < 1:
            self._suppressed += 1
            return
        self._tokens -= 1
        self.report_suppressed()
        self._logger.log(level, line, *arguments)

    def report_suppressed(self) -> None:
        """Log how many lines were suppressed since the last report, if any."""
        count = self._suppressed
        self._suppressed = 0
        if count:
            self._logger.warning("%d similar lines were suppressed, above %g a second", count, self._lines_per_s)
