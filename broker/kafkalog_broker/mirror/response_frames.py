"""Responses as they come off a connection: read from the socket into the memory that they stay in, handed out in order.

StreamReader would copy each byte three times. Large responses lie in buffers that are used again: fresh memory of 16 MB
costs the system more than its checksum.
"""

from __future__ import annotations

import asyncio
from collections import deque

import numpy as np
import numpy.typing as npt

_SIZE_BYTES = 4
_POOLED_FROM = 256 << 10
"""Bytes from which on a response gets one of the buffers: below, the allocator has memory at hand."""
_KEPT = 3
"""Buffers that are kept: one that is read, one that is checked, one that is appended."""
MAX_RESPONSE = 1 << 30
"""Bytes: what claims to be larger is no response of Kafka's. A batch larger than all limits comes whole (KIP-74)."""


Buffer = bytearray | npt.NDArray[np.uint8]


class ResponseFrames(asyncio.BufferedProtocol):
    """The protocol of one connection, once it is logged in. before: the one that it had, which learns what happens to
    the connection.

    `expect` a response for each request, in order; `give_back` a large one that nobody looks at any more.
    """

    def __init__(self, before: asyncio.BaseProtocol) -> None:
        self._before = before
        self._waiting: deque[tuple[asyncio.Future[memoryview], int]] = deque()
        self._free: list[Buffer] = []
        self._lent: dict[int, Buffer] = {}
        self._head = bytearray(_SIZE_BYTES)
        self._begin(self._head, _SIZE_BYTES)
        self._reads_head = True
        self._transport: asyncio.BaseTransport | None = None
        self.is_over = False

    def _begin(self, buffer: Buffer, size: int) -> None:
        self._buffer, self._size, self._have = buffer, size, 0
        self._rest = _view(buffer)[:size]

    # ---- for the connection

    def take_over(self, transport: asyncio.Transport) -> None:
        """From now on what comes on it comes here."""
        self._transport = transport
        transport.set_protocol(self)

    def expect(self, most: int = MAX_RESPONSE) -> asyncio.Future[memoryview]:
        """The next response but for those that are expected already, from its header on; ConnectionError when the
        connection ends before, or the response has more than `most` bytes."""
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        if self.is_over:
            future.set_exception(ConnectionError("the connection is closed"))
        else:
            self._waiting.append((future, most))
        return future

    def give_back(self, body: memoryview) -> None:
        """Nobody looks at this response any more, nor at a part of it. Harmless twice, and where it is left out."""
        buffer = self._lent.pop(id(body.obj), None)
        if buffer is not None and len(self._free) < _KEPT:
            self._free.append(buffer)

    # ---- as a protocol

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._rest

    def buffer_updated(self, nbytes: int) -> None:
        self._have += nbytes
        if self._have < self._size:
            self._rest = self._rest[nbytes:]
        elif self._reads_head:
            size = int.from_bytes(self._head, "big", signed=True)
            if not self._waiting or not 0 < size <= self._waiting[0][1]:
                self._fail(ConnectionError(f"{size} bytes come that are no response to a request"))
                return
            self._reads_head = False
            self._begin(self._memory(size), size)
        else:
            body = _view(self._buffer)[: self._size]
            future, _ = self._waiting.popleft()
            self._reads_head = True
            self._begin(self._head, _SIZE_BYTES)
            if not future.done():
                future.set_result(body)
            else:
                self.give_back(body)

    def _memory(self, size: int) -> Buffer:
        if size < _POOLED_FROM:
            return bytearray(size)
        place = next((place for place, buffer in enumerate(self._free) if len(buffer) >= size), None)
        if place is not None:
            fitting = self._free.pop(place)
        else:
            if self._free:
                self._free.pop(0)  # too small: the larger one takes its place
            fitting = np.empty(size, np.uint8)  # the system gives memory as bytes come, not as they are announced
        self._lent[id(fitting)] = fitting
        if len(self._lent) > _KEPT:  # one that was not given back is not waited for
            del self._lent[next(iter(self._lent))]
        return fitting

    def _fail(self, error: Exception) -> None:
        self.is_over = True
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
        self._free.clear()
        self._lent.clear()
        if self._transport is not None:
            self._transport.close()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc if isinstance(exc, OSError) else ConnectionError("the source closed the connection"))
        self._before.connection_lost(exc)

    def pause_writing(self) -> None:
        self._before.pause_writing()

    def resume_writing(self) -> None:
        self._before.resume_writing()


def _view(buffer: Buffer) -> memoryview:
    return memoryview(buffer)  # type: ignore[arg-type]  # before 3.12 no type says that an array is a buffer
