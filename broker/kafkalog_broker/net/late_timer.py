"""Timers that expire sessions, postponed after a stall of the event loop.

An event loop runs timers before it reads sockets. After a stall of the machine or of the loop, the heartbeats of all
members are still unread in their sockets while the timers that expire those members are due. A timer that fires more
than LATE_AFTER_S late is therefore postponed by GRACE_S, so that a heartbeat that has arrived can cancel it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LATE_AFTER_S = 0.1  # twice the longest time for which one request should hold the loop (`loop_watch.py`)

GRACE_S = 0.25  # enough to read and handle about a thousand heartbeats


class LateTimer:
    """Calls a function after `delay_s` seconds of the loop's time, or up to GRACE_S later after a stall."""

    __slots__ = ("_callback", "_due", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: float, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._arm(delay_s)

    def cancel(self) -> None:
        self._handle.cancel()

    def _arm(self, delay_s: float) -> None:
        self._due = self._loop.time() + delay_s
        self._handle = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        if self._loop.time() - self._due > LATE_AFTER_S:
            self._arm(GRACE_S)
        else:
            self._callback()


def schedule(delay_ms: int, callback: Callable[[], None]) -> LateTimer:
    """Start a LateTimer in the running event loop."""
    return LateTimer(asyncio.get_running_loop(), delay_ms / 1000, callback)


async def sleep(delay_s: float) -> None:
    """Sleep for `delay_s` seconds, or up to GRACE_S longer after a stall."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timer = LateTimer(loop, delay_s, lambda: None if over.done() else over.set_result(None))
    try:
        await over
    finally:
        timer.cancel()
