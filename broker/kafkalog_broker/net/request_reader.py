"""Reads the requests of one connection: splits received bytes into frames, each a 4-byte size and that many bytes.

The socket writes either into a buffer that all connections of an event loop share, from which whole frames are copied,
or, once a frame has begun, directly into the memory of that frame. One read may return thousands of small frames. They
are made a few at a time, and reading pauses until `make_frames` has made all of them.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque

import numpy as np

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.net.memory_pool import MemoryPool
from kafkalog_broker.net.read_turns import ReadTurns

SIZE_BYTES = 4
_SIZE = struct.Struct(">i")

RECEIVE_BUFFER_BYTES = 256 << 10
"""Size of the shared buffer: Linux returns at most this many bytes from one read by default."""

READ_BYTES = 128 << 10
"""Limit on the bytes that one read adds to a frame that has begun, so that reading can pause after each read."""

FRAME_OVERHEAD = 64  # bytes of memory that a waiting frame takes besides its content

FRAMES_AT_ONCE = 64  # frames made of received bytes before they are handled

MAX_OTHER_BYTES = 16 << 20
"""Limit on requests other than Produce. Kafka has none, but data that it stores from such a request (committed offsets,
a group's assignment) must fit into one batch of 1 MB, and a Fetch of 16 MB names half a million partitions."""

PRODUCE = b"\0\0"  # API key of the only request that may be as large as socket.request.max.bytes

READ_AHEAD_BYTES = 64 << 10
"""Bytes of waiting requests above which reading pauses. Many small pipelined requests are read ahead, but only one
large request while another is handled."""


class RequestReader:
    """Frames of one connection, read-only and without their size.

    Attributes:
        frames: Queue of complete frames. Remove them with `next_frame` only.
        transport: Transport of the connection; None before it is made and after it is lost.
        ended: True if no further frames will be accepted.
        has_more: True if received bytes may contain further frames; call `make_frames` before more is read.
        max_bytes: Largest accepted frame, without its size.
    """

    __slots__ = (
        "_filled", "_frame", "_in_work_bytes", "_is_paused", "_loop", "_pool", "_reserved", "_rest", "_shared",
        "_turns", "_waiting_bytes", "_wakeup", "ended", "frames", "has_more", "max_bytes", "transport",
    )  # fmt: skip

    def __init__(self, shared: memoryview, max_bytes: int, pool: MemoryPool, turns: ReadTurns) -> None:
        """
        Args:
            shared: Writable receive buffer. Its content is not needed after `accept_bytes` returns.
            max_bytes: Largest frame (socket.request.max.bytes).
            pool: Every frame that has begun reserves its bytes and FRAME_OVERHEAD until it is done or dropped.
            turns: Limits how much one connection reads in an iteration of the loop.
        """
        self._shared = shared
        self.max_bytes = max_bytes
        self._pool = pool
        self._turns = turns
        self._loop = turns.loop
        self._wakeup: asyncio.Future[None] | None = None
        self._rest: bytes | memoryview = b""  # read, but not made into frames yet
        self.has_more = False
        self._frame: memoryview | None = None  # the frame that has begun
        self._filled = 0
        self._reserved = 0  # bytes of the pool that `_frame` holds
        self._waiting_bytes = 0  # bytes of the pool that the frames in the queue hold
        self._in_work_bytes = 0  # bytes of the pool that the frame being handled holds
        self._is_paused = False
        self.frames: deque[bytes | memoryview] = deque()
        self.transport: asyncio.Transport | None = None
        self.ended = False

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes. Never empty."""
        if self._frame is not None:
            return self._frame[self._filled : self._filled + READ_BYTES]
        return self._shared

    def accept_bytes(self, count: int, is_busy: bool) -> None:
        """Accept `count` bytes that were written into `buffer()`.

        Args:
            count: Number of bytes.
            is_busy: True while a request is being handled.

        Raises:
            MalformedRequest: If a frame's size is invalid or above the limit. Frames before it are in the queue;
                nothing after it can be read.
            MemoryError: If a frame cannot be allocated. The same applies.
        """
        if self.ended:
            return
        frame, frames = self._frame, self.frames
        if frame is None:
            data = self._shared[:count]
            self._split(b"".join((self._rest, data)) if self._rest else data)
        else:
            self._filled += count
            self._check_large_frame(frame, self._filled)
            if self._filled == len(frame):
                self._waiting_bytes += self._reserved
                self._frame, self._filled, self._reserved = None, 0, 0
                frames.append(frame.toreadonly())
        if self.has_more:
            self._pause()
            self.wake_up()
        elif frames:
            if self._waiting_bytes > READ_AHEAD_BYTES and (is_busy or len(frames) > 1):
                self._pause()
            self.wake_up()
        elif self._turns.account_for(count, self._resume_if_small):
            self._pause()

    def wait_more(self) -> asyncio.Future[None]:
        """Return a future that completes when more frames may have arrived, or when the connection ends."""
        self._wakeup = self._loop.create_future()
        return self._wakeup

    def wake_up(self) -> None:
        """Complete the future of `wait_more`."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def make_frames(self) -> bool:
        """Make frames of received bytes, and return True if at least one was made.

        If the pool is used up, the future of `wait_more` completes as soon as memory is available.
        """
        self._split(self._rest)
        if self.frames:
            return True
        if self.has_more:
            self._pool.call_when_free(self.wake_up)
        else:  # a frame has begun, and its remaining bytes have to be read
            self._resume()
        return False

    def next_frame(self) -> bytes | memoryview:
        """Remove and return the first frame. Call `release_frame` once it has been handled."""
        frame = self.frames.popleft()
        cost = len(frame) + FRAME_OVERHEAD
        self._waiting_bytes -= cost
        if self._is_paused:
            self._resume_if_small()
        if self._pool.is_limited:
            if frame[:2] == PRODUCE:
                self._in_work_bytes = cost
            else:  # as in Kafka, because a decoded request without records does not keep its frame
                self._pool.release(cost)
        return frame

    def release_frame(self) -> None:
        """Return the memory of the frame from `next_frame` to the pool."""
        if self._in_work_bytes:
            size = self._in_work_bytes
            self._in_work_bytes = 0
            self._pool.release(size)

    def end(self) -> None:
        """Ignore further bytes. Frames in the queue stay."""
        self.ended = True

    def drop(self) -> None:
        """Discard all frames and bytes, and return their memory to the pool."""
        self._pool.forget(self.wake_up)
        self._turns.forget(self._resume_if_small)
        self.frames.clear()
        size = self._waiting_bytes + self._in_work_bytes + self._reserved
        self._waiting_bytes = self._in_work_bytes = self._reserved = self._filled = 0
        self._frame, self._rest, self.has_more = None, b"", False
        if self._pool.is_limited:
            self._pool.release(size)

    def _split(self, data: bytes | memoryview) -> None:
        pool = self._pool
        limited = self._pool.is_limited
        max_bytes = self.max_bytes
        count = len(data)
        position = 0
        for _ in range(FRAMES_AT_ONCE):
            begin = position + SIZE_BYTES
            if begin > count:
                break
            (size,) = _SIZE.unpack_from(data, position)
            if not 0 < size <= max_bytes:  # an empty frame has no header; Kafka closes the connection too
                raise MalformedRequest(f"a request of {size} bytes, socket.request.max.bytes allows 1 to {max_bytes}")
            cost = size + FRAME_OVERHEAD
            if limited and not pool.try_allocate(cost):
                break
            end = begin + size
            if end > count:
                self._begin(data[begin:], size, cost)
                position = count
                break
            self._waiting_bytes += cost
            frame = bytes(data[begin:end])
            if size > MAX_OTHER_BYTES:
                self._check_large_frame(frame, size)
            self.frames.append(frame)
            position = end
        self._rest = bytes(data[position:]) if position < count else b""
        self.has_more = count - position >= SIZE_BYTES

    def _begin(self, start: bytes | memoryview, size: int, cost: int) -> None:
        # numpy does not initialize the memory, so a forged size allocates no pages; bytearray would write all of them.
        self._reserved = cost  # before the allocation, which may raise MemoryError
        self._frame = np.empty(size, np.uint8).data
        self._filled = len(start)
        self._frame[: self._filled] = start
        self._check_large_frame(self._frame, self._filled)

    def _check_large_frame(self, frame: bytes | memoryview, filled: int) -> None:
        """Raise MalformedRequest if a frame above MAX_OTHER_BYTES is not a Produce request."""
        if len(frame) > MAX_OTHER_BYTES and filled >= len(PRODUCE) and frame[: len(PRODUCE)] != PRODUCE:
            key = int.from_bytes(frame[: len(PRODUCE)], "big", signed=True)
            raise MalformedRequest(
                f"a request of {len(frame)} bytes of API key {key}; {MAX_OTHER_BYTES} is the most for a request that "
                "is not Produce: send several smaller ones"
            )

    def _pause(self) -> None:
        if not self._is_paused and self.transport is not None:
            self._is_paused = True
            self.transport.pause_reading()

    def _resume_if_small(self) -> None:
        """Resume reading if few bytes wait and all of them have been made into frames."""
        if self._is_paused and not self.has_more and self._waiting_bytes <= READ_AHEAD_BYTES:
            self._resume()

    def _resume(self) -> None:
        self._is_paused = False
        if self.transport is not None and not self.ended and not self.transport.is_closing():
            self.transport.resume_reading()
