"""Fair scheduling of the event loop: long work yields to other requests between its steps.

    time_slice = TimeSlice()
    async for partition in time_slice.spread(partitions):
        ...

Work written as a generator that yields between its steps runs in `run_in_slices`. Work that cannot be divided
into steps runs in a thread (`Broker.run_blocking`, `Broker.run_computing`). `spread` is an async generator, which costs
too much for Fetch and Produce; they check `is_over` themselves.

All requests that need the loop for longer than a slice wait in one queue (`FairQueue`). In each iteration of the loop,
up to SLICES_PER_ITERATION requests that have not run yet get a slice, and one request that has already run gets a turn,
which is longer. However many long requests there are, a short one waits only for one turn per iteration and for the
slices of the requests before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable
from time import perf_counter
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

SLICE_S = 0.0005
"""Time that a connection may use before it has to queue: about ten small requests."""

FIRST_SLICE_S = SLICE_S / 2
"""Time that a request may use before it has to queue. It begins in the middle of its connection's slice: on average,
earlier requests have used half of it."""

SLICES_PER_ITERATION = 8
"""Number of slices per iteration of the loop: at most this many are granted to waiting requests, and about as many
without waiting."""

TURN_S = 0.004
"""Turn of a request that has already run. It may take longer, because a step is never interrupted."""

SHORT_TURN_S = 0.001
"""Turn while requests that have not run yet are waiting, because those are more likely to be short."""

MAX_ITERATION_S = 0.02
"""Longer than any normal iteration. After this time the next iteration is assumed to have begun, even if
`FairQueue.begin_iteration` was not called."""

_QUEUES: WeakKeyDictionary[asyncio.AbstractEventLoop, FairQueue] = WeakKeyDictionary()
"""Queue of each event loop. A queue has no reference to its loop, because the entry would then never be removed."""


class TimeSlice:
    """Time slice or turn of one request. The first slice begins when the object is created."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = perf_counter() + FIRST_SLICE_S

    @property
    def is_over(self) -> bool:
        """True if other requests have to run now."""
        return perf_counter() >= self._end

    async def wait_turn(self) -> None:
        """Wait in the queue of requests that have already run, then begin a turn."""
        self._end = await fair_queue().wait_turn()

    async def wait_slice(self) -> None:
        """Wait in the queue of requests that have not run yet, then begin a slice.

        Use it for many short tasks that begin together.
        """
        self._end = await fair_queue().wait_slice()

    async def spread(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Iterate over the items, and wait for a turn between items when the slice is over. May be nested."""
        for item in items:
            if self.is_over:
                await self.wait_turn()
            yield item


async def run_in_slices(steps: Generator[None, None, T], time_slice: TimeSlice | None = None) -> T:
    """Run a generator to its result, and wait for a turn between steps when the slice is over."""
    time_slice = time_slice or TimeSlice()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value
        if time_slice.is_over:
            await time_slice.wait_turn()


class FairQueue:
    """Queue of requests and connections that wait for the event loop. One per loop (`fair_queue()`); not thread-safe.

    Times are those of perf_counter.
    """

    def __init__(self) -> None:
        self._not_yet_run: deque[asyncio.Future[float]] = deque()  # waiters for their first slice
        self._already_run: deque[asyncio.Future[float]] = deque()  # waiters for a turn
        self._is_scheduled = False  # `_grant` runs in the loop's next iteration
        self._immediate_slices_end: float | None = None  # of this iteration; None if it has granted no slice yet

    def begin_iteration(self) -> None:
        """Let `slice_now` grant slices again: a new iteration of the event loop has begun.

        Called when bytes have arrived from a socket, because the loop reads its sockets at the start of an iteration.
        """
        self._immediate_slices_end = None

    def slice_now(self, now: float) -> float | None:
        """Return the end of a slice that begins now, or None if the caller has to await `wait_slice`.

        An iteration grants such slices, one after the other, for the time of SLICES_PER_ITERATION slices; none while
        other connections or requests wait.
        """
        if self._is_scheduled:
            return None
        end = self._immediate_slices_end
        if end is None or now >= end + MAX_ITERATION_S:
            self._immediate_slices_end = now + SLICES_PER_ITERATION * SLICE_S
        elif now >= end:
            return None
        return now + SLICE_S

    async def wait_slice(self) -> float:
        """Wait for the first slice and return its end."""
        return await self._wait(self._not_yet_run) + perf_counter()

    async def wait_turn(self) -> float:
        """Wait for another turn after a slice or turn was used up, and return its end."""
        return await self._wait(self._already_run) + perf_counter()

    def _wait(self, queue: deque[asyncio.Future[float]]) -> asyncio.Future[float]:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[float] = loop.create_future()
        queue.append(waiter)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._grant)
        return waiter

    def _grant(self) -> None:
        """Grant slices and one turn. The waiters run in the next iteration, before the next `_grant`."""
        for _ in range(SLICES_PER_ITERATION):
            if not _grant_first(self._not_yet_run, SLICE_S):
                break
        _grant_first(self._already_run, SHORT_TURN_S if self._not_yet_run else TURN_S)
        if self._not_yet_run or self._already_run:
            asyncio.get_running_loop().call_soon(self._grant)
        else:
            self._is_scheduled = False


def fair_queue() -> FairQueue:
    """Return the queue of the running event loop."""
    loop = asyncio.get_running_loop()
    queue = _QUEUES.get(loop)
    if queue is None:
        queue = _QUEUES[loop] = FairQueue()
    return queue


def _grant_first(queue: deque[asyncio.Future[float]], seconds: float) -> bool:
    """Grant `seconds` to the first waiter that is not cancelled. Return False if there is none."""
    while queue:
        waiter = queue.popleft()
        if not waiter.done():
            waiter.set_result(seconds)
            return True
    return False
