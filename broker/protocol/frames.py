"""Frames: a 4-byte size, then that many bytes. Assembled as the bytes come in, each byte copied at most once.

The owner asks for a buffer, lets the socket write into it and says how much came. As long as no frame is begun, that is
a buffer shared by all connections of an event loop, out of which whole frames are copied. For the rest of a frame that
has begun, it is the frame's own memory.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from broker.errors import MalformedRequest

SIZE_BYTES = 4

RECEIVE_BUFFER_BYTES = 256 << 10
"""What one read from a socket can bring: as much as Linux hands over at once by default."""


class FrameAssembler:
    """The frames of one connection. `partial_bytes` counts what has come of the frame that is not complete yet."""

    __slots__ = ("_filled", "_frame", "_max_bytes", "_shared", "_size")

    def __init__(self, shared: memoryview, max_bytes: int) -> None:
        """`shared`: the writable receive buffer; nothing of it is kept between `received` and the next `buffer`.

        `max_bytes`: the largest frame, without its size (socket.request.max.bytes).
        """
        self._shared = shared
        self._max_bytes = max_bytes
        self._size = b""  # the first bytes of a size that has not come whole
        self._frame: memoryview | None = None
        self._filled = 0

    @property
    def partial_bytes(self) -> int:
        return len(self._size) + self._filled

    def buffer(self) -> memoryview:
        """Where the next bytes go. Never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._shared

    def received(self, count: int, frames: deque[bytes | memoryview]) -> int:
        """`count` bytes have come into `buffer()`: append the frames they complete, return the bytes of those frames.

        Frames are read-only and without their size. Raises MalformedRequest for a size that is negative or too large;
        then nothing more can be read from the connection. Frames in front of it have been appended.
        """
        frame = self._frame
        if frame is not None:
            self._filled += count
            if self._filled < len(frame):
                return 0
            self._frame = None
            self._filled = 0
            frames.append(frame.toreadonly())
            return len(frame)

        shared = self._shared
        completed = 0
        position = 0
        while position < count:
            head = self._size
            if head or count - position < SIZE_BYTES:
                take = min(SIZE_BYTES - len(head), count - position)
                head += bytes(shared[position : position + take])
                position += take
                if len(head) < SIZE_BYTES:
                    self._size = head
                    break
                self._size = b""
            else:
                head = bytes(shared[position : position + SIZE_BYTES])
                position += SIZE_BYTES
            size = int.from_bytes(head, "big", signed=True)
            if not 0 <= size <= self._max_bytes:
                raise MalformedRequest(
                    f"a request of {size} bytes, socket.request.max.bytes allows 0 to {self._max_bytes}"
                )
            end = position + size
            if end <= count:
                frames.append(bytes(shared[position:end]))
                completed += size
                position = end
            else:
                # Memory that is not written to costs nothing, so a size that is a lie costs nothing: numpy leaves the
                # memory as it is, while bytearray would write zeros into all of it.
                self._frame = np.empty(size, np.uint8).data
                self._filled = count - position
                self._frame[: self._filled] = shared[position:count]
                break
        return completed


def receive_buffer() -> memoryview:
    """A receive buffer for all connections of one event loop."""
    return memoryview(bytearray(RECEIVE_BUFFER_BYTES))
