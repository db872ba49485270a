"""Shares the event loop fairly between connections that receive large requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

BYTES_PER_ITERATION = 2 << 20  # limit for all connections together; a Produce request has up to 1 MB by default

RESUMED_PER_ITERATION = 8
"""Paused connections that resume in one iteration, few enough that each of them reads at least one piece."""


class ReadTurns:
    """Limits the bytes of incomplete frames that are read in one iteration of the event loop.

    Once BYTES_PER_ITERATION are read, connections whose frame is incomplete pause, and resume in later iterations in
    the order in which they paused. One per event loop, called from its thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._bytes_left = BYTES_PER_ITERATION
        self._paused: dict[Callable[[], None], None] = {}  # an ordered set
        self._is_scheduled = False  # `_start_iteration` will run in the next iteration

    def account_for(self, count: int, resume: Callable[[], None]) -> bool:
        """Account for `count` bytes of an incomplete frame that were just read.

        Returns:
            True if the connection must not read more in this iteration; `resume` is then called in a later one.
        """
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._start_iteration)
        self._bytes_left -= count
        if self._bytes_left <= 0:
            self._paused[resume] = None
        return self._bytes_left <= 0

    def forget(self, resume: Callable[[], None]) -> None:
        """Drop a paused connection. A no-op if it is not paused."""
        self._paused.pop(resume, None)

    def _start_iteration(self) -> None:
        self._bytes_left = BYTES_PER_ITERATION
        try:
            for _ in range(min(RESUMED_PER_ITERATION, len(self._paused))):
                resume = next(iter(self._paused))
                del self._paused[resume]
                resume()
        finally:  # if `resume` fails, the other connections must not stay paused
            self._is_scheduled = bool(self._paused)
            if self._is_scheduled:
                self.loop.call_soon(self._start_iteration)
