"""Large requests that are read, handled and answered at the same time: so many that their values fit into memory.

A value of a request costs some ten times its bytes, and fifty requests of 240 kB at once took 300 MB. So a request
above `LARGE_BYTES` waits as its frame, not decoded, until those in work leave room, in the order in which they came.
One is always in work, however large it is. When none is, what they used is given back to the operating system.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from kafkalog_broker.runtime.process import TRIM_AFTER_S, trim_memory

LARGE_BYTES = 64 << 10
"""A ListOffsets of 5,000 partitions: its values take 1.5 MB. Smaller ones wait for nobody."""

IN_WORK_BYTES = 1 << 20
"""Of the frames of large requests that are in work: some 25 MB of values."""

WAITING_APIS = frozenset((1, 11, 14))
"""Fetch, JoinGroup and SyncGroup may wait for others for minutes, so they keep their place only while they are read."""


class LargeRequests:
    """Places for large requests, counted in bytes of their frames. For one event loop, in its thread."""

    def __init__(self, trim: Callable[[], object] | None = None) -> None:
        self._trim = trim or trim_memory
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._idle: asyncio.TimerHandle | None = None
        self.in_work = 0
        """Bytes of the frames that have a place."""

    async def place(self, size: int) -> Callable[[], None]:
        """Wait for room for a frame of `size` bytes. What is returned gives it back, when first called."""
        if self._waiting or not self._fits(size):
            room = asyncio.get_running_loop().create_future()
            self._waiting.append((size, room))
            try:
                await room  # who sets it counts this one
            except asyncio.CancelledError:
                if room.done() and not room.cancelled():
                    self._leave(size)
                raise
        else:
            self.in_work += size
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        has_left = False

        def leave() -> None:
            nonlocal has_left
            if not has_left:
                has_left = True
                self._leave(size)

        return leave

    def _leave(self, size: int) -> None:
        self.in_work -= size
        while self._waiting:
            wanted, room = self._waiting[0]
            if not room.done():
                if not self._fits(wanted):
                    return
                self.in_work += wanted
                room.set_result(None)
            self._waiting.popleft()
        if not self.in_work and self._idle is None:
            self._idle = asyncio.get_running_loop().call_later(TRIM_AFTER_S, self._give_back)

    def _fits(self, size: int) -> bool:
        return not self.in_work or self.in_work + size <= IN_WORK_BYTES

    def _give_back(self) -> None:
        self._idle = None
        asyncio.get_running_loop().run_in_executor(None, self._trim)


# What all connections together read in one round of the event loop, where large frames come in.
#
# A socket hands over all that it holds at one read, 32 MB over loopback, and memory that was never touched costs a
# page fault every 4 kB: three frames of 99 MB held the loop for half a second. So the rest of a frame is read in
# pieces (`frames.READ_BYTES`), and when a round has read ROUND_BYTES, connections whose frame is not complete read
# on in later rounds, a few in each, in the order in which they came.

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


# Short work that comes in crowds, a few pieces in each round of the event loop.
#
# The end of a connection costs 20 microseconds or more with the request that waited in it: when 2,000 clients leave
# together, all that in the round in which their sockets say so would hold the loop for 40 ms.

A_ROUND = 16
"""Ends of connections in one round: about 1 ms."""


class Rounds:
    """For one event loop, in its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._moving = False  # `_next` is called in the loop's next round

    def call(self, work: Callable[[], None]) -> None:
        """Call `work` now, or in a later round, after those that came before it."""
        if not self._moving:
            self._moving, self._left = True, A_ROUND
            self._loop.call_soon(self._next)
        if self._left:  # then nobody waits
            self._left -= 1
            work()
        else:
            self._waiting.append(work)

    async def ended(self) -> None:
        """Wait until all work has been called."""
        while self._waiting:
            await asyncio.sleep(0)

    def _next(self) -> None:
        self._moving = False
        for _ in range(min(A_ROUND, len(self._waiting))):
            self.call(self._waiting.popleft())
