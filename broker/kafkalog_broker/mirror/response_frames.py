"""Responses read from a connection into their final memory, and handed out in order.

StreamReader would copy each byte three times. Large responses are read into buffers that are reused, because fresh
memory of 16 MB costs the system more than its checksum.
"""

from __future__ import annotations

import asyncio
from collections import deque

import numpy as np
import numpy.typing as npt

_SIZE_BYTES = 4
_POOLED_FROM = 256 << 10
"""Bytes from which on a response gets one of the buffers: below, the allocator has memory at hand."""
_KEPT = 3  # buffers that are kept: one that is read, one that is checked, one that is appended
MAX_RESPONSE = 1 << 30
"""Bytes: what claims to be larger is no response of Kafka's. A batch larger than all limits comes whole (KIP-74)."""


class ResponseFrames(asyncio.BufferedProtocol):
    """The protocol of one connection, once it is logged in. before: the one that it had, which learns of its end."""

    def __init__(self, before: asyncio.BaseProtocol, transport: asyncio.Transport) -> None:
        self._before, self._transport = before, transport
        self._waiting: deque[tuple[asyncio.Future[memoryview], int]] = deque()
        self._free: list[npt.NDArray[np.uint8]] = []
        self._head = memoryview(bytearray(_SIZE_BYTES))
        self._body: memoryview | None = None  # None: its size comes first
        self._rest = self._head  # where the next bytes go
        self.is_over = False
        transport.set_protocol(self)

    def expect(self, most: int = MAX_RESPONSE) -> asyncio.Future[memoryview]:
        """The next response but for those that are expected already, from its header on; ConnectionError when the
        connection ends before, or the response has more than `most` bytes. Raises ConnectionError if it is closed."""
        if self.is_over:
            raise ConnectionError("the connection is closed")
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, most))
        return future

    def give_back(self, body: memoryview) -> None:
        """Nobody looks at this response any more, nor at a part of it. Harmless twice, and where it is left out."""
        buffer = body.obj
        if isinstance(buffer, np.ndarray) and len(self._free) < _KEPT and all(one is not buffer for one in self._free):
            self._free.append(buffer)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._rest

    def buffer_updated(self, nbytes: int) -> None:
        self._rest = self._rest[nbytes:]
        if len(self._rest):
            return
        if self._body is None:
            size = int.from_bytes(self._head, "big", signed=True)
            if not self._waiting or not 0 < size <= self._waiting[0][1]:
                self._fail(ConnectionError(f"{size} bytes come that are no response to a request"))
                return
            self._rest = self._body = self._memory(size)
        else:
            body, self._body, self._rest = self._body, None, self._head
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_result(body)
            else:
                self.give_back(body)

    def _memory(self, size: int) -> memoryview:
        if size < _POOLED_FROM:
            return memoryview(bytearray(size))
        place = next((place for place, buffer in enumerate(self._free) if len(buffer) >= size), None)
        if place is not None:
            fitting = self._free.pop(place)
        else:
            del self._free[:1]  # too small: the larger one takes its place
            fitting = np.empty(size, np.uint8)  # the system gives memory as bytes come, not as they are announced
        return memoryview(fitting)[:size]  # type: ignore[arg-type]  # before 3.12 no type says that it is a buffer

    def _fail(self, error: Exception) -> None:
        self.is_over = True
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
        self._free.clear()
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc if isinstance(exc, OSError) else ConnectionError("the source closed the connection"))
        self._before.connection_lost(exc)
