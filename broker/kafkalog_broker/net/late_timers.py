"""Timers that end somebody's session: one that fires late has the sockets read first.

An event loop runs timers before it reads sockets. After a stall, of the machine or of the loop, the heartbeats of all
members lie in their sockets while the timers that expire those members are due. So a timer that is late by more than
LATE_S is put off by GRACE_S: what has arrived is handled meanwhile, and cancels it where it was a heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LATE_S = 0.1
"""Ten times what the loop may be held."""

GRACE_S = 0.25
"""To read and handle what has arrived: some thousand heartbeats."""


class LateTimer:
    """Calls `call` in `delay_s` seconds of the loop's time, as `loop.call_later` does, but for the above."""

    __slots__ = ("_call", "_due", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: float, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._arm(delay_s)

    def cancel(self) -> None:
        self._handle.cancel()

    def _arm(self, delay_s: float) -> None:
        self._due = self._loop.time() + delay_s
        self._handle = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        if self._loop.time() - self._due > LATE_S:
            self._arm(GRACE_S)
        else:
            self._call()


async def sleep(delay_s: float) -> None:
    """`asyncio.sleep`, but for the above."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timer = LateTimer(loop, delay_s, lambda: None if over.done() else over.set_result(None))
    try:
        await over
    finally:
        timer.cancel()
