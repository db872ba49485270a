"""Large requests that are read, handled and answered at the same time: so many that their values fit into memory.

A value of a request costs some ten times its bytes, and fifty requests of 240 kB at once took 300 MB. So a request
above `LARGE_BYTES` waits as its frame, not decoded, until those in work leave room, in the order in which they came.
One is always in work, however large it is. When none is, what they used is given back to the operating system.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from kafkalog_broker.idle_trim import TRIM_AFTER_S, trim_memory

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
