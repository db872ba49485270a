"""What all connections together read in one round of the event loop, where large frames come in.

A socket hands over all that it holds at one read, 32 MB over loopback, and memory that was never touched costs a page
fault every 4 kB: three frames of 99 MB held the loop for half a second. So the rest of a frame is read in pieces
(`frames.READ_BYTES`), and when a round has read ROUND_BYTES, connections whose frame is not complete read on in later
rounds, a few in each, in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

ROUND_BYTES = 2 << 20
"""Some 3 ms. A request of Produce has 1 MB by default."""

READERS = 8
"""Connections that read on in one round: each reads one piece at least before the round is over for it."""


class ReadTurns:
    """For one event loop, in its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = ROUND_BYTES
        self._waiting: dict[Callable[[], None], None] = {}
        self._moving = False

    def over(self, count: int) -> bool:
        """`count` bytes of a frame that is not complete were read; whether no more are to be read in this round."""
        if not self._moving:
            self._moving = True
            self._loop.call_soon(self._next_round)
        self._left -= count
        return self._left <= 0

    def wait(self, read_on: Callable[[], None]) -> None:
        """Call `read_on` in a later round. After `over` has said so."""
        self._waiting[read_on] = None

    def forget(self, read_on: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._waiting.pop(read_on, None)

    def _next_round(self) -> None:
        self._left = ROUND_BYTES
        for _ in range(min(READERS, len(self._waiting))):
            read_on = next(iter(self._waiting))
            del self._waiting[read_on]
            read_on()
        self._moving = bool(self._waiting)
        if self._moving:
            self._loop.call_soon(self._next_round)
