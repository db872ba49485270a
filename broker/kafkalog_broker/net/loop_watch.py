"""How long the event loop was held at a stretch, by API: a figure that must stay below 50 ms. A step of a request is
measured, from where it begins or goes on to where it waits for something or ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.protocol.api_registry import registry

NOTED_S = 0.001  # shorter ones are not noted: they hold up nobody, and most requests cost one comparison then


class LoopWatch:
    """The longest hold of each API, in seconds; of what has no API under the name it was noted with."""

    def __init__(self) -> None:
        self._longest: dict[str, float] = {}

    def note(self, api: bytes, seconds: float) -> None:
        """`api`: the first two bytes of the request."""
        if seconds <= NOTED_S:
            return
        key = int.from_bytes(api, "big", signed=True)
        self.note_named(api_name(key) if key in registry() else "unknown", seconds)

    def note_named(self, name: str, seconds: float) -> None:
        if seconds > self._longest.get(name, NOTED_S):
            self._longest[name] = seconds

    @property
    def longest(self) -> Mapping[str, float]:
        """Seconds by API name, the longest first."""
        return dict(sorted(self._longest.items(), key=lambda item: -item[1]))

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in list(self.longest.items())[:10])
        return shown or f"nobody more than {NOTED_S * 1000:.0f} ms"


# Timers that end somebody's session. An event loop runs timers before it reads sockets: after a stall, of the machine
# or of the loop, the heartbeats of all members lie in their sockets while the timers that expire those members are due.
# So a timer that is late by more than LATE_S is put off by GRACE_S: a heartbeat that has arrived cancels it meanwhile.

LATE_S = 0.1  # twice what one request may hold the loop

GRACE_S = 0.25  # to read and handle what has arrived: some thousand heartbeats


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


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, asyncio's own elsewhere."""
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
