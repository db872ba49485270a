"""The requests of one connection as they are read: they wait in a queue, bounded by what is read ahead.

When more than READ_AHEAD_BYTES wait, reading pauses until the queue is shorter.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from kafkalog_broker.protocol.frames import FRAME_OVERHEAD, PRODUCE, FrameAssembler, MemoryPool

READ_AHEAD_BYTES = 64 << 10
"""Small pipelined requests are read many at a time; of large ones, one waits while one is handled."""


ROUND_BYTES = 2 << 20
"""Some 3 ms. A request of Produce has 1 MB by default."""

READERS = 8
"""Connections that read on in one round: each reads one piece at least before the round is over for it."""


class ReadTurns:
    """Who reads on in a round. The rest of a frame is read in pieces (`frames.READ_BYTES`), and when a round has read
    ROUND_BYTES, connections whose frame is not complete read on in later rounds, in the order in which they came. For
    one event loop, in its thread."""

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


class RequestReader:
    """Reads from `transport`, the connection's while it is there, None before and after.

    `frames` is the queue, to be looked at; `take` takes the first.
    """

    __slots__ = (
        "_in_work_bytes", "_loop", "_paused", "_pool", "_turns", "_waiting_bytes", "_wakeup",
        "assembler", "buffer", "ended", "frames", "transport",
    )  # fmt: skip

    def __init__(self, assembler: FrameAssembler, pool: MemoryPool, turns: ReadTurns) -> None:
        self.assembler, self._pool, self._turns = assembler, pool, turns
        self._loop = asyncio.get_running_loop()
        self._wakeup: asyncio.Future[None] | None = None
        self._waiting_bytes = 0  # of the frames that wait, as they are taken from the pool
        self._in_work_bytes = 0  # of the frame that is handled
        self._paused = False
        self.frames: deque[bytes | memoryview] = deque()
        self.transport: asyncio.Transport | None = None
        self.ended = False
        """No further frames will come, or none are wanted."""
        self.buffer = assembler.buffer
        """Where the next bytes that are read go."""

    def received(self, count: int, busy: bool) -> None:
        """So many bytes have come into the buffer; `busy`: a request is being handled.

        Raises MalformedRequest, or MemoryError; then nothing more can be read.
        """
        if self.ended:
            return
        frames = self.frames
        self._waiting_bytes += self.assembler.received(count, frames)
        if self.assembler.has_more:
            self._pause()
            self.wake_up()
        elif frames:
            if self._waiting_bytes > READ_AHEAD_BYTES and (busy or len(frames) > 1):
                self._pause()
            self.wake_up()
        elif self._turns.over(count):
            self._pause()
            self._turns.wait(self._read_on)

    def more(self) -> asyncio.Future[None]:
        """Done when there may be more, or the end."""
        self._wakeup = self._loop.create_future()
        return self._wakeup

    def wake_up(self) -> None:
        """Whoever waits for `more` looks again."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def make_frames(self) -> bool:
        """Make frames of what has been read; whether there are any. Where there is no memory for one, `more` is done as
        soon as there is."""
        self._waiting_bytes += self.assembler.next_frames(self.frames)
        if self.frames:
            return True
        if self.assembler.has_more:
            self._pool.call_when_free(self.wake_up)
        else:  # a frame has begun: its rest is to be read
            self._resume()
        return False

    def take(self) -> bytes | memoryview:
        """The first frame; `done` is to be called after it has been handled."""
        frame = self.frames.popleft()
        cost = len(frame) + FRAME_OVERHEAD
        self._waiting_bytes -= cost
        if self._paused:
            self._read_on()
        if self._pool.limited:
            if frame[:2] == PRODUCE:
                self._in_work_bytes = cost
            else:  # as in Kafka: what has no records does not need its frame for long
                self._pool.give_back(cost)
        return frame

    def done(self) -> None:
        """The frame that was taken is not needed any more."""
        if self._in_work_bytes:
            size, self._in_work_bytes = self._in_work_bytes, 0
            self._pool.give_back(size)

    def drop(self) -> None:
        """Forget what waits; its memory goes back to the pool."""
        self._pool.forget(self.wake_up)
        self._turns.forget(self._read_on)
        self.frames.clear()
        self.assembler.close()
        size, self._waiting_bytes, self._in_work_bytes = self._waiting_bytes + self._in_work_bytes, 0, 0
        if self._pool.limited:
            self._pool.give_back(size)

    def _pause(self) -> None:
        if not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def _read_on(self) -> None:
        """When the queue is short enough."""
        if self._paused and not self.assembler.has_more and self._waiting_bytes <= READ_AHEAD_BYTES:
            self._resume()

    def _resume(self) -> None:
        self._paused = False
        if self.transport is not None and not self.ended and not self.transport.is_closing():
            self.transport.resume_reading()
