"""Fair scheduling of the event loop: long work yields to other requests between its steps.

    turn = TimeSlice()
    async for partition in turn.spread(partitions):
        ...

Work written as a generator that yields between its steps runs in `run_in_slices`. Work that cannot be divided
into steps runs in a thread (`Broker.run_blocking`, `Broker.run_computing`). `spread` is an async generator, which costs
too much for Fetch and Produce; they check `is_over` themselves.

All requests that need the loop for longer than a slice wait in one queue. In each iteration of the loop, some requests
that begin get a time slice, and one request that continues gets a longer turn. However many long requests there are, a
short one waits only for one turn per iteration and for the slices of the requests before it.
"""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

TURN_S = 0.004  # turn of a request that continues; it may end later, because a step is never interrupted

SHORT_TURN_S = 0.001  # turn while other requests wait to begin, because those are more likely to be short

SLICE_S = 0.0005
"""Time that a connection may use before it has to queue: about ten small requests."""

FIRST_SLICE_S = SLICE_S / 2
"""Time that a request may use before it has to queue. With earlier requests of its connection it adds up to a slice."""

SLICES = 8  # slices granted to waiting connections in one iteration

ROUND_TIMEOUT_S = (
    0.02  # time after which a round is over even if no connection has read; longer than any normal iteration
)


class TimeSlice:
    """Time slice of one request, which begins when the object is made."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = perf_counter() + FIRST_SLICE_S

    @property
    def is_over(self) -> bool:
        """True if other requests have to run now."""
        return perf_counter() >= self._end

    async def next(self) -> None:
        """Yield to the loop, then start a new slice."""
        self._end = await fair_queue().wait_turn()

    async def begin(self) -> None:
        """Queue like a request that begins, then start a slice. Use it for many short tasks that begin together."""
        self._end = await fair_queue().wait_slice()

    async def spread(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Iterate over the items, and yield to the loop between items when the slice is over. May be nested."""
        for item in items:
            if self.is_over:
                await self.next()
            yield item


def in_parts(items: Iterable[T], count: int) -> Iterator[list[T]]:
    """Divide the items into lists of `count`; the last one may be shorter."""
    iterator = iter(items)
    while part := list(islice(iterator, count)):
        yield part


async def run_in_slices(steps: Generator[None, None, T], turn: TimeSlice | None = None) -> T:
    """Run a generator to its result, and yield to the loop between steps when the slice is over."""
    turn = turn or TimeSlice()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value
        if turn.is_over:
            await turn.next()


NOT_BEGUN: Any = object()
"""Stands for a coroutine that has not been started."""


@types.coroutine
def timed(
    work: Coroutine[Any, Any, T], note: Callable[[float], None], waits_for: Any = NOT_BEGUN
) -> Generator[Any, Any, T]:
    """Run a coroutine to its result and report how long each of its steps held the event loop.

    Args:
        work: The coroutine.
        note: Called with the seconds of each step.
        waits_for: The future that `work` awaits, if it has been started already.
    """
    step: Callable[[], Any] = partial(work.send, None)
    while True:
        if waits_for is not NOT_BEGUN:
            try:
                step = partial(work.send, (yield waits_for))
            except BaseException as error:  # noqa: BLE001 - passed on to `work`
                step = partial(work.throw, error)
        began = perf_counter()
        try:
            waits_for = step()
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            note(perf_counter() - began)


class FairQueue:
    """Queue of requests and connections that wait for the event loop. One per loop (`fair_queue()`); not thread-safe.

    Times are those of perf_counter.

    Attributes:
        round_end: Time at which the slices that one iteration of the loop grants without waiting are used up. None
            before the first slice of an iteration; a connection sets None when it has read from its socket, because a
            new iteration has then begun.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._beginning: deque[asyncio.Future[float]] = deque()  # waiters that have had no slice yet
        self._continuing: deque[asyncio.Future[float]] = deque()  # waiters that have had a slice or a turn
        self._is_scheduled = False  # `_grant` runs in the loop's next iteration
        self.round_end: float | None = None

    def slice_now(self, now: float) -> float | None:
        """Return the end of a slice that begins now, or None if the caller has to await `wait_slice`."""
        if self._is_scheduled:
            return None
        end = self.round_end
        if end is None or now >= end + ROUND_TIMEOUT_S:
            self.round_end = now + SLICES * SLICE_S
        elif now >= end:
            return None
        return now + SLICE_S

    async def wait_slice(self) -> float:
        """Wait for the first slice and return its end."""
        return await self._wait(self._beginning) + perf_counter()

    async def wait_turn(self) -> float:
        """Wait for another turn after a slice or turn was used up, and return its end."""
        return await self._wait(self._continuing) + perf_counter()

    def _wait(self, queue: deque[asyncio.Future[float]]) -> asyncio.Future[float]:
        granted: asyncio.Future[float] = self._loop.create_future()
        queue.append(granted)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._grant)
        return granted

    def _grant(self) -> None:
        """Grant slices and one turn. Their owners run in the next iteration, before the next `_grant`."""
        for _ in range(SLICES):
            if not _grant_first(self._beginning, SLICE_S):
                break
        _grant_first(self._continuing, SHORT_TURN_S if self._beginning else TURN_S)
        if self._beginning or self._continuing:
            self._loop.call_soon(self._grant)
        else:
            self._is_scheduled = False


def _grant_first(queue: deque[asyncio.Future[float]], seconds: float) -> bool:
    """Grant `seconds` to the first waiter that is not cancelled. Return False if there is none."""
    while queue:
        granted = queue.popleft()
        if not granted.done():
            granted.set_result(seconds)
            return True
    return False


_QUEUES: WeakKeyDictionary[asyncio.AbstractEventLoop, FairQueue] = WeakKeyDictionary()


def fair_queue() -> FairQueue:
    """Return the queue of the running event loop."""
    loop = asyncio.get_running_loop()
    queue = _QUEUES.get(loop)
    if queue is None:
        queue = _QUEUES[loop] = FairQueue(loop)
    return queue
