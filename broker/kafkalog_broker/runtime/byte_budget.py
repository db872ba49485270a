"""Limit on the bytes that many requests together hold in memory."""

from __future__ import annotations

import asyncio
from collections import deque


class Lease:
    """Bytes of a budget that one request holds until `release`."""

    __slots__ = ("_budget", "size")

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self.size = size

    @property
    def is_wanted(self) -> bool:
        """True if other requests wait for bytes of the budget."""
        return self._budget.has_waiting

    def resize(self, size: int) -> None:
        """Hold `size` bytes from now on, even above the limit, because they are already in memory."""
        self._budget.used += size - self.size
        self.size = size
        self._budget.grant_waiting()

    def release(self) -> None:
        """Return the bytes to the budget. Idempotent."""
        self.resize(0)


class ByteBudget:
    """Budget of at most `limit` bytes in leases, which are granted in the order of the calls of `acquire`.

    A lease larger than `limit` is granted when no other is held. Not thread-safe; call from the event loop.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[Lease]]] = deque()

    @property
    def has_waiting(self) -> bool:
        return any(not lease.done() for _, lease in self._waiting)

    async def acquire(self, size: int) -> Lease:
        """Wait until `size` bytes are available and return a lease for them."""
        future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        self.grant_waiting()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                future.result().release()
            else:
                future.cancel()
                self.grant_waiting()
            raise

    def grant_waiting(self) -> None:
        """Grant waiting leases as far as the limit allows."""
        while self._waiting:
            size, future = self._waiting[0]
            if not future.done():
                if self.used and self.used + size > self._limit:
                    return
                self.used += size
                future.set_result(Lease(self, size))
            self._waiting.popleft()
