"""Frames: a 4-byte size, then that many bytes. Assembled as the bytes come in, each byte copied at most twice.

The owner asks for a buffer, lets the socket write into it and says how much came. As long as no frame is begun, that is
a buffer shared by all connections of an event loop, out of which whole frames are copied. For the rest of a frame that
has begun, it is the frame's own memory.

What one read brings may be thousands of small frames. They are made a few at a time; the bytes of the others are kept
as they are until the owner asks for more (`next_frames`), and until then it has to stop reading.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable

import numpy as np

from kafkalog_broker.errors import MalformedRequest
from kafkalog_spark.format import varints

# What the flexible versions of the protocol (KIP-482) are made of: varints and tagged fields.

MAX_UNKNOWN_TAGS = 100
"""Tagged fields that are passed over one after the other in a struct that has none by itself."""


def read_uvarint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """As varints.read_uvarint. MalformedRequest where it is cut short or above 32 bits."""
    try:
        byte = data[position]
        return (byte, position + 1) if byte < 0x80 else varints.read_uvarint(data, position)
    except IndexError:
        raise MalformedRequest(f"the request ends inside a varint at byte {position} of {len(data)}") from None
    except ValueError:
        raise MalformedRequest(f"the varint at byte {position} has more than 32 bits") from None


def skip_tagged_fields(data: bytes | memoryview, position: int) -> int:
    """The position after the tagged fields that begin at `position`."""
    if position < len(data) and data[position] == 0:  # no tags: nearly always
        return position + 1
    count, position = read_uvarint(data, position)
    if count > MAX_UNKNOWN_TAGS:
        raise MalformedRequest(f"{count} tagged fields at byte {position}, none of which is known")
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > len(data):
            raise MalformedRequest(f"a tagged field of {size} bytes ends past the request of {len(data)} bytes")
    return position


# queued.max.request.bytes: how many bytes of requests may be in memory at once (Kafka's SimpleMemoryPool, KIP-72).
#
# As in Kafka a frame takes what its size announces, as soon as it has begun, and may be the one that goes over the
# limit: a limit that is smaller than a request stops nobody. When nothing is left, no connection begins another
# frame; those that have begun one read it to its end.

UNLIMITED = -1
"""Kafka's default."""


class MemoryPool:
    """`limit` in bytes, UNLIMITED or at least 1. Without a limit nothing is taken or given back. For one thread."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.limited = limit > 0
        self.used = 0
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_used_up(self) -> bool:
        return self.limited and self.used >= self.limit

    def take(self, size: int) -> bool:
        """Take `size` bytes, unless the pool is used up."""
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
        """Call `waiting` once when there is memory again."""
        self._waiting[waiting] = None

    def forget(self, waiting: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._waiting.pop(waiting, None)


SIZE_BYTES = 4
_SIZE = struct.Struct(">i")

RECEIVE_BUFFER_BYTES = 256 << 10
"""Bytes that one read from a socket can bring: as many as Linux hands over at once by default."""

READ_BYTES = 128 << 10
"""Bytes that one read of the rest of a frame can bring, so that whoever reads can stop after it."""

FRAME_OVERHEAD = 64
"""Memory of a waiting frame besides its bytes: an object and its place in the queue."""

FRAMES_AT_ONCE = 64
"""How many frames are made of one read before some of them are handled."""

MAX_OTHER_BYTES = 16 << 20
"""The largest request that carries no records. Kafka has no such limit, but what it stores of such a request (offsets,
the assignments of a group) has to fit into one batch of 1 MB, and a Fetch of 16 MB names half a million partitions."""

PRODUCE = b"\0\0"
"""The API key that may be as large as socket.request.max.bytes."""


class FrameAssembler:
    """The frames of one connection.

    Bytes of frames that have begun are taken from `pool` with FRAME_OVERHEAD each; who is done with a frame gives them
    back, and `close` gives back those of the frame that has not come whole.
    """

    __slots__ = ("_filled", "_frame", "_max_bytes", "_pool", "_rest", "_shared", "_taken", "has_more")

    def __init__(self, shared: memoryview, max_bytes: int, pool: MemoryPool) -> None:
        """`shared`: the writable receive buffer; nothing of it is kept between `received` and the next `buffer`.

        `max_bytes`: the largest frame, without its size (socket.request.max.bytes).
        """
        self._shared = shared
        self._max_bytes = max_bytes
        self._pool = pool
        self._rest: bytes | memoryview = b""  # read, and not made into frames yet
        self.has_more = False
        """True if frames may be made of what has been read: nothing is to be read before `next_frames` is called."""
        self._frame: memoryview | None = None
        self._filled = 0
        self._taken = 0  # from the pool, for _frame

    def allow(self, max_bytes: int) -> None:
        """From the next frame on, `max_bytes` is the largest."""
        self._max_bytes = max_bytes

    @property
    def partial_bytes(self) -> int:
        """Bytes received of the frame that is not complete yet."""
        return len(self._rest) + self._filled

    def buffer(self) -> memoryview:
        """Where the next bytes go. Never empty."""
        if self._frame is not None:
            return self._frame[self._filled : self._filled + READ_BYTES]
        return self._shared

    def received(self, count: int, frames: deque[bytes | memoryview]) -> int:
        """`count` bytes have come into `buffer()`: append frames they complete, return what those cost.

        Frames are read-only and without their size. Raises MalformedRequest for a size that is none, or above what the
        API may have; then nothing more can be read from the connection. Frames in front of it have been appended.
        """
        frame = self._frame
        if frame is not None:
            self._filled += count
            self._check_other(frame, self._filled)
            if self._filled < len(frame):
                return 0
            taken, self._taken = self._taken, 0
            self._frame = None
            self._filled = 0
            frames.append(frame.toreadonly())
            return taken
        data: bytes | memoryview = self._shared[:count]
        if self._rest:
            data = b"".join((self._rest, data))
        return self._split(data, frames)

    def next_frames(self, frames: deque[bytes | memoryview]) -> int:
        """As `received`, of what has been read before."""
        return self._split(self._rest, frames)

    def close(self) -> None:
        """Forget everything; the memory of the frame that has not come whole goes back to the pool."""
        if self._pool.limited:
            self._pool.give_back(self._taken)
        self._taken = 0
        self._frame = None
        self._filled = 0
        self._rest = b""
        self.has_more = False

    def _split(self, data: bytes | memoryview, frames: deque[bytes | memoryview]) -> int:
        pool, limited, max_bytes = self._pool, self._pool.limited, self._max_bytes
        count = len(data)
        cost = 0
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
            if end <= count:
                frame = bytes(data[begin:end])
                if size > MAX_OTHER_BYTES:
                    self._check_other(frame, size)
                frames.append(frame)
                cost += taken
                position = end
            else:
                self._begin(data[begin:], size, taken)
                position = count
                break
        self._rest = bytes(data[position:]) if position < count else b""
        self.has_more = count - position >= SIZE_BYTES
        return cost

    def _begin(self, start: bytes | memoryview, size: int, taken: int) -> None:
        # Memory that is not written to costs nothing, so a size that is a lie costs nothing: numpy leaves the memory as
        # it is, while bytearray would write zeros into all of it.
        self._frame = np.empty(size, np.uint8).data
        self._taken = taken
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
