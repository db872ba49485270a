"""Reads responses from a connection into their final buffers, and delivers them in order.

StreamReader would copy each byte three times. Buffers of large responses are reused, because a fresh 16 MB allocation
costs more than the checksum of its bytes.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque

import numpy as np
import numpy.typing as npt

_SIZE_BYTES = 4
_POOLED_FROM = 256 << 10
"""Size in bytes from which on a response gets a reused buffer; smaller allocations are cheap."""
_MAX_FREE = 3  # reused buffers: one being read, one being checked, one being appended
MAX_RESPONSE = 1 << 30
"""Largest response in bytes. A batch may exceed all configured limits (KIP-74), but not this."""


class ResponseFrames(asyncio.BufferedProtocol):
    """Protocol of one connection after authentication."""

    def __init__(self, previous_protocol: asyncio.BaseProtocol, transport: asyncio.Transport) -> None:
        """Replace the previous protocol of a transport; its `connection_lost` is still called."""
        self._previous_protocol = previous_protocol
        self._transport = transport
        self._waiting: deque[tuple[asyncio.Future[memoryview], int]] = deque()
        self._free: list[npt.NDArray[np.uint8]] = []
        # Views of reused buffers that responses hold, by id. Each use of a buffer has a view of its own.
        self._in_use: weakref.WeakValueDictionary[int, npt.NDArray[np.uint8]] = weakref.WeakValueDictionary()
        self._head = memoryview(bytearray(_SIZE_BYTES))
        self._body: memoryview | None = None  # None while the size is read
        self._unfilled = self._head  # where the next bytes go
        self.is_over = False
        transport.set_protocol(self)

    def expect(self, max_bytes: int = MAX_RESPONSE) -> asyncio.Future[memoryview]:
        """Return a future for the next response; call it once for each request, in order.

        The result begins with the header of the response. The future fails with ConnectionError if the connection ends
        first, or if the response has more than `max_bytes` bytes.

        Raises:
            ConnectionError: If the connection is closed.
        """
        if self.is_over:
            raise ConnectionError("the connection is closed")
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, max_bytes))
        return future

    def give_back(self, body: memoryview) -> None:
        """Allow a response's buffer to be reused; no view of it may be used afterwards. Optional and idempotent."""
        view = self._in_use.pop(id(body.obj), None)
        buffer = None if view is None else view.base
        if buffer is not None and len(self._free) < _MAX_FREE:
            self._free.append(buffer)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._unfilled

    def buffer_updated(self, nbytes: int) -> None:
        self._unfilled = self._unfilled[nbytes:]
        if len(self._unfilled):
            return
        if self._body is None:
            size = int.from_bytes(self._head, "big", signed=True)
            if not self._waiting or not 0 < size <= self._waiting[0][1]:
                self._fail(
                    ConnectionError(f"received a frame of {size} bytes: too large, or not a response to a request")
                )
                return
            self._unfilled = self._body = self._allocate(size)
        else:
            body = self._body
            self._body = None
            self._unfilled = self._head
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_result(body)
            else:
                self.give_back(body)

    def _allocate(self, size: int) -> memoryview:
        if size < _POOLED_FROM:
            return memoryview(bytearray(size))
        slot = next((slot for slot, buffer in enumerate(self._free) if len(buffer) >= size), None)
        if slot is not None:
            fitting = self._free.pop(slot)
        else:
            del self._free[:1]  # a buffer that is too small is replaced by a larger one
            fitting = np.empty(size, np.uint8)  # pages are allocated as bytes arrive, so a forged size costs nothing
        view = fitting[:size]
        self._in_use[id(view)] = view
        return memoryview(view)  # type: ignore[arg-type]  # before 3.12 no type says that it is a buffer

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
        self._previous_protocol.connection_lost(exc)
