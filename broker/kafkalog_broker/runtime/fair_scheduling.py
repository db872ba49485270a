"""Fair scheduling of the event loop: long work lets others run between two of its steps.

turn = TimeSlice()
async for partition in turn.spread(asked):
    ...

Work that is a generator, which yields between its steps, is driven by `run_in_slices`. What cannot be cut into
steps runs in a thread (`Broker.run_blocking`, `Broker.run_computing`). `spread` costs some 2 microseconds and 0.2 an
item, so Fetch and Produce look at `over` by hand.

All who want the loop for longer than a slice stand in one line, so that their turns do not add up. A round of the loop
(whatever is ready runs, then sockets are looked at) holds the slices of some who begin, and one turn of somebody who
goes on. So however many long requests there are, one that is short waits for the slices of those that came before it.
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

TURN_S = 0.004  # how long one request may go on in a round; the step in which the time runs out is still finished

SHORT_TURN_S = 0.001  # the same while others wait to begin: they are more likely to be short

SLICE_S = 0.0005
"""Time that a connection may use before it has to queue: some ten small requests. With 50 connections that use up
theirs, the 51st waits for 25 ms of slices and 7 short turns."""

FIRST_S = SLICE_S / 2
"""Time that a request may use before it has to queue: with what its connection has used already, about a slice."""

SLICES = 8  # how many connections that stand in line begin in one round

STALE_S = 0.02  # after this long a round is over even if nobody said so: longer than one in which all get in line


class TimeSlice:
    """Time slice of one request. It begins when it is made."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = perf_counter() + FIRST_S

    @property
    def over(self) -> bool:
        """True if others have to go now."""
        return perf_counter() >= self._end

    async def next(self) -> None:
        """Let others go, then begin again."""
        self._end = await fair_queue().go_on()

    async def begin(self) -> None:
        """Let those go who wait to begin, and then begin: for short work that comes in a crowd."""
        self._end = await fair_queue().begin()

    async def spread(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items; others go before one of them when the turn is over. May be nested."""
        for item in items:
            if self.over:
                await self.next()
            yield item


def in_parts(items: Iterable[T], count: int) -> Iterator[list[T]]:
    """The items, so many at a time."""
    left = iter(items)
    while part := list(islice(left, count)):
        yield part


async def run_in_slices(steps: Generator[None, None, T], turn: TimeSlice | None = None) -> T:
    """Run `steps` to its result; others run in between when a time slice is over."""
    turn = turn or TimeSlice()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value
        if turn.over:
            await turn.next()


NOT_BEGUN: Any = object()


@types.coroutine
def timed(
    work: Coroutine[Any, Any, T], note: Callable[[float], None], waits_for: Any = NOT_BEGUN
) -> Generator[Any, Any, T]:
    """Run `work` to its result, and tell `note` the seconds that each of its steps held the event loop. waits_for: what
    it waits for, where it has begun."""
    step: Callable[[], Any] = partial(work.send, None)
    while True:
        if waits_for is not NOT_BEGUN:
            try:
                step = partial(work.send, (yield waits_for))
            except BaseException as error:  # noqa: BLE001 - what is thrown into this is for the work
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
    """Queue of those who wait for the loop, one per event loop (`fair_queue()`), used in its thread. Times are those of
    perf_counter."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._fresh: deque[asyncio.Future[float]] = deque()  # who begins
        self._long: deque[asyncio.Future[float]] = deque()  # who has had a slice or a turn
        self._moving = False  # `_move` is called in the loop's next round
        self.round_end = 0.0
        """When the slices that nobody had to wait for are used up. Whoever has read a socket sets it to 0: none was
        given in this round."""

    def slice_now(self, now: float) -> float:
        """The end of a slice that begins at once, or 0: `begin` is to be awaited."""
        if self._moving:
            return 0.0
        end = self.round_end
        if now >= end:
            if end and now < end + STALE_S:
                return 0.0
            self.round_end = now + SLICES * SLICE_S
        return now + SLICE_S

    async def begin(self) -> float:
        """Wait for a slice; its end."""
        return await self._wait(self._fresh) + perf_counter()

    async def go_on(self) -> float:
        """Wait for a turn, after a slice or turn was used up; its end."""
        return await self._wait(self._long) + perf_counter()

    def _wait(self, queue: deque[asyncio.Future[float]]) -> asyncio.Future[float]:
        place: asyncio.Future[float] = self._loop.create_future()
        queue.append(place)
        if not self._moving:
            self._moving = True
            self._loop.call_soon(self._move)
        return place

    def _move(self) -> None:
        """Those whose turn it is run in the next round, before the next `_move`."""
        for _ in range(SLICES):
            if not _let_go(self._fresh, SLICE_S):
                break
        _let_go(self._long, SHORT_TURN_S if self._fresh else TURN_S)
        if self._fresh or self._long:
            self._loop.call_soon(self._move)
        else:
            self._moving = False


def _let_go(queue: deque[asyncio.Future[float]], seconds: float) -> bool:
    """Give the first of `queue` that still waits that many seconds; False when there is none."""
    while queue:
        place = queue.popleft()
        if not place.done():  # its request was cancelled
            place.set_result(seconds)
            return True
    return False


_QUEUES: WeakKeyDictionary[asyncio.AbstractEventLoop, FairQueue] = WeakKeyDictionary()


def fair_queue() -> FairQueue:
    loop = asyncio.get_running_loop()
    found = _QUEUES.get(loop)
    if found is None:
        found = _QUEUES[loop] = FairQueue(loop)
    return found
