"""Requests as they are read from a connection: bytes to frames (a 4-byte size, then that many bytes), and frames to a
queue.

The socket writes into a buffer that all connections of an event loop share, out of which whole frames are copied, or
into the memory of a frame that has begun. One read may bring thousands of small frames: they are made a few at a time,
and nothing is read until the owner has asked for the others (`make_frames`).
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable

import numpy as np

from kafkalog_broker.errors import MalformedRequest


class MemoryPool:
    """queued.max.request.bytes: how many bytes of requests may be in memory at once (SimpleMemoryPool, KIP-72).
    `limit`: -1, the default, or at least 1. Without a limit nothing is taken or given back. For one thread.

    As in Kafka a frame takes what its size announces, as soon as it has begun, and may be the one that goes over the
    limit: a limit that is smaller than a request stops nobody. When nothing is left, no connection begins another
    frame; those that have begun one read it to its end.
    """

    def __init__(self, limit: int = -1) -> None:
        self.limit = limit
        self.limited = limit > 0
        self.used = 0
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_used_up(self) -> bool:
        return self.limited and self.used >= self.limit

    def take(self, size: int) -> bool:
        if self.is_used_up:
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """Those that wait are called when there is memory again, in the order in which they came."""
        self.used -= size
        while self._waiting and not self.is_used_up:
            waiting = next(iter(self._waiting))
            del self._waiting[waiting]
            waiting()

    def call_when_free(self, waiting: Callable[[], None]) -> None:
        self._waiting[waiting] = None

    def forget(self, waiting: Callable[[], None]) -> None:
        self._waiting.pop(waiting, None)


SIZE_BYTES = 4
_SIZE = struct.Struct(">i")

RECEIVE_BUFFER_BYTES = 256 << 10
"""Bytes that one read from a socket can bring: as many as Linux hands over at once by default."""

READ_BYTES = 128 << 10
"""Bytes that one read of the rest of a frame can bring, so that whoever reads can stop after it."""

FRAME_OVERHEAD = 64  # memory of a waiting frame besides its bytes: an object and its place in the queue

FRAMES_AT_ONCE = 64  # how many frames are made of one read before some of them are handled

MAX_OTHER_BYTES = 16 << 20
"""The largest request that carries no records. Kafka has no such limit, but what it stores of such a request (offsets,
the assignments of a group) has to fit into one batch of 1 MB, and a Fetch of 16 MB names half a million partitions."""

PRODUCE = b"\0\0"  # the API key that may be as large as socket.request.max.bytes


READ_AHEAD_BYTES = 64 << 10
"""Bytes of waiting requests above which reading pauses: small pipelined requests are read many at a time; of large
ones, one waits while one is handled."""

ROUND_BYTES = 2 << 20  # some 3 ms. A request of Produce has 1 MB by default.

READERS = 8
"""Connections that read on in one round: each reads one piece at least before the round is over for it."""


class ReadTurns:
    """Who reads on in a round: when it has read ROUND_BYTES of frames in pieces (READ_BYTES), connections whose frame
    is not complete read on in later rounds, in the order in which they came. For one event loop, in its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._left = ROUND_BYTES
        self._waiting: dict[Callable[[], None], None] = {}
        self._moving = False

    def over(self, count: int, read_on: Callable[[], None]) -> bool:
        """`count` bytes of a frame that is not complete were read. True if no more are to be read in this round; then
        `read_on` is called in a later one."""
        if not self._moving:
            self._moving = True
            self.loop.call_soon(self._next_round)
        self._left -= count
        if self._left <= 0:
            self._waiting[read_on] = None
        return self._left <= 0

    def forget(self, read_on: Callable[[], None]) -> None:
        self._waiting.pop(read_on, None)

    def _next_round(self) -> None:
        self._left = ROUND_BYTES
        for _ in range(min(READERS, len(self._waiting))):
            read_on = next(iter(self._waiting))
            del self._waiting[read_on]
            read_on()
        self._moving = bool(self._waiting)
        if self._moving:
            self.loop.call_soon(self._next_round)


class RequestReader:
    """The frames of one connection, read-only and without their size. Reads from `transport`, the connection's while it
    is there, None before and after. `frames` is the queue, to be looked at; `take` takes the first."""

    __slots__ = (
        "_filled", "_frame", "_in_work_bytes", "_loop", "_paused", "_pool", "_rest", "_shared", "_taken", "_turns",
        "_waiting_bytes", "_wakeup", "ended", "frames", "has_more", "max_bytes", "transport",
    )  # fmt: skip

    def __init__(self, shared: memoryview, max_bytes: int, pool: MemoryPool, turns: ReadTurns) -> None:
        """shared: the writable receive buffer; nothing of it is kept between `received` and the next `buffer`.
        max_bytes: the largest frame from now on, without its size (socket.request.max.bytes). pool: bytes of frames
        that have begun are taken from it with FRAME_OVERHEAD each, until they are done or dropped."""
        self._shared, self.max_bytes, self._pool, self._turns = shared, max_bytes, pool, turns
        self._loop = turns.loop
        self._wakeup: asyncio.Future[None] | None = None
        self._rest: bytes | memoryview = b""  # read, and not made into frames yet
        self.has_more = False
        """True if frames may be made of what has been read: nothing is to be read before `make_frames` is called."""
        self._frame: memoryview | None = None
        self._filled = 0
        self._taken = 0  # from the pool, for _frame
        self._waiting_bytes = 0  # of the frames that wait, as they are taken from the pool
        self._in_work_bytes = 0  # of the frame that is handled
        self._paused = False
        self.frames: deque[bytes | memoryview] = deque()
        self.transport: asyncio.Transport | None = None
        self.ended = False  # no further frames will come, or none are wanted

    def buffer(self) -> memoryview:
        """Where the next bytes go. Never empty."""
        if self._frame is not None:
            return self._frame[self._filled : self._filled + READ_BYTES]
        return self._shared

    def received(self, count: int, busy: bool) -> None:
        """So many bytes have come into `buffer()`; `busy`: a request is being handled. Raises MalformedRequest for a
        size that is none, or above what the API may have, or MemoryError: frames in front of it are in the queue, and
        nothing more can be read from the connection."""
        if self.ended:
            return
        frame, frames = self._frame, self.frames
        if frame is None:
            data = self._shared[:count]
            self._split(b"".join((self._rest, data)) if self._rest else data)
        else:
            self._filled += count
            self._check_other(frame, self._filled)
            if self._filled == len(frame):
                self._waiting_bytes += self._taken
                self._frame, self._filled, self._taken = None, 0, 0
                frames.append(frame.toreadonly())
        if self.has_more:
            self._pause()
            self.wake_up()
        elif frames:
            if self._waiting_bytes > READ_AHEAD_BYTES and (busy or len(frames) > 1):
                self._pause()
            self.wake_up()
        elif self._turns.over(count, self._read_on):
            self._pause()

    def _split(self, data: bytes | memoryview) -> None:
        pool, limited, max_bytes = self._pool, self._pool.limited, self.max_bytes
        count = len(data)
        position = 0
        for _ in range(FRAMES_AT_ONCE):
            begin = position + SIZE_BYTES
            if begin > count:
                break
            (size,) = _SIZE.unpack_from(data, position)
            if not 0 < size <= max_bytes:  # an empty one has no header; Kafka closes the connection too
                raise MalformedRequest(f"a request of {size} bytes, socket.request.max.bytes allows 1 to {max_bytes}")
            taken = size + FRAME_OVERHEAD
            if limited and not pool.take(taken):
                break
            end = begin + size
            if end > count:
                self._begin(data[begin:], size, taken)
                position = count
                break
            self._waiting_bytes += taken
            frame = bytes(data[begin:end])
            if size > MAX_OTHER_BYTES:
                self._check_other(frame, size)
            self.frames.append(frame)
            position = end
        self._rest = bytes(data[position:]) if position < count else b""
        self.has_more = count - position >= SIZE_BYTES

    def _begin(self, start: bytes | memoryview, size: int, taken: int) -> None:
        # Memory that is not written to costs nothing, so a size that is a lie costs nothing: numpy leaves the memory as
        # it is, while bytearray would write zeros into all of it.
        self._taken = taken  # before there may be no memory
        self._frame = np.empty(size, np.uint8).data
        self._filled = len(start)
        self._frame[: self._filled] = start
        self._check_other(self._frame, self._filled)

    def _check_other(self, frame: bytes | memoryview, filled: int) -> None:
        if len(frame) > MAX_OTHER_BYTES and filled >= len(PRODUCE) and frame[: len(PRODUCE)] != PRODUCE:
            key = int.from_bytes(frame[: len(PRODUCE)], "big", signed=True)
            raise MalformedRequest(
                f"a request of {len(frame)} bytes of API key {key}; {MAX_OTHER_BYTES} is the most for a request that "
                "is not Produce: send several smaller ones"
            )

    def more(self) -> asyncio.Future[None]:
        """Done when there may be more, or the end."""
        self._wakeup = self._loop.create_future()
        return self._wakeup

    def wake_up(self) -> None:
        """Whoever waits for `more` looks again."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def make_frames(self) -> bool:
        """Make frames of what was read; True if any. Without memory for one, `more` is done as soon as there is."""
        self._split(self._rest)
        if self.frames:
            return True
        if self.has_more:
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
        """The memory of what waits goes back to the pool."""
        self._pool.forget(self.wake_up)
        self._turns.forget(self._read_on)
        self.frames.clear()
        size = self._waiting_bytes + self._in_work_bytes + self._taken
        self._waiting_bytes = self._in_work_bytes = self._taken = self._filled = 0
        self._frame, self._rest, self.has_more = None, b"", False
        if self._pool.limited:
            self._pool.give_back(size)

    def _pause(self) -> None:
        if not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def _read_on(self) -> None:
        if self._paused and not self.has_more and self._waiting_bytes <= READ_AHEAD_BYTES:
            self._resume()

    def _resume(self) -> None:
        self._paused = False
        if self.transport is not None and not self.ended and not self.transport.is_closing():
            self.transport.resume_reading()
