"""Budget of bytes that the work of many requests may hold in memory at a time."""

from __future__ import annotations

import asyncio
from collections import deque


class Lease:
    """Bytes of a budget that one request holds, until `release`."""

    __slots__ = ("_budget", "size")

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget, self.size = budget, size

    @property
    def is_wanted(self) -> bool:
        """True if others wait for room in the budget."""
        return self._budget.has_waiting

    def resize(self, size: int) -> None:
        """Hold `size` bytes from now on: what is in memory already is counted also where there is no room for it."""
        self._budget.used += size - self.size
        self.size = size
        self._budget.let_in()

    def release(self) -> None:
        """Hold nothing any more. A no-op the second time."""
        self.resize(0)


class ByteBudget:
    """At most `limit` bytes, in leases that are given in the order of `take`. A lease of more than `limit` is given
    when no other is held. Not thread-safe; call from the event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[Lease]]] = deque()

    @property
    def has_waiting(self) -> bool:
        return any(not lease.done() for _, lease in self._waiting)

    async def take(self, size: int) -> Lease:
        """Wait until there is room for `size` bytes."""
        future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        self.let_in()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                future.result().release()
            else:
                future.cancel()
                self.let_in()
            raise

    def let_in(self) -> None:
        """Give leases to those that wait, as far as there is room."""
        while self._waiting:
            size, future = self._waiting[0]
            if not future.done():
                if self.used and self.used + size > self._limit:
                    return
                self.used += size
                future.set_result(Lease(self, size))
            self._waiting.popleft()
