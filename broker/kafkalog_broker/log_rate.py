"""Log lines that any client can cause: so many at once, so many a second, and how many were left out is said."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

AT_ONCE = 200
"""Lines that may come together: what a restarted fleet of clients with one wrong setting causes."""

A_SECOND = 10
"""Lines a second after that: 1.5 MB of log in an hour, and enough to see who it is."""


class LogRate:
    """Lines of one kind to one logger. `clock`: seconds, of time.monotonic. For one thread."""

    def __init__(
        self,
        logger: logging.Logger,
        *,
        at_once: int = AT_ONCE,
        a_second: float = A_SECOND,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._logger = logger
        self._at_once, self._a_second, self._clock = at_once, a_second, clock
        self._left: float = at_once
        self._at = clock()
        self._left_out = 0

    def log(self, level: int, line: str, *arguments: object) -> None:
        """Log `line`, or count it. Lines of a level that is switched off count as none."""
        if not self._logger.isEnabledFor(level):
            return
        now = self._clock()
        self._left = min(self._at_once, self._left + (now - self._at) * self._a_second)
        self._at = now
        if self._left < 1:
            self._left_out += 1
            return
        self._left -= 1
        self.tell_left_out()
        self._logger.log(level, line, *arguments)

    def tell_left_out(self) -> None:
        """One line about those that were left out since the last one that was logged, if there were any."""
        count, self._left_out = self._left_out, 0
        if count:
            self._logger.warning(
                "%d lines like the one before were left out: more than %g came in a second", count, self._a_second
            )
