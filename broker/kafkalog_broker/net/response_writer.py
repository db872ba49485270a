"""Writes the responses of one connection.

Responses to small requests that arrived together are sent together, because one write costs as much as handling a small
request. While the peer does not read, at most one response (and WRITE_BUFFER_BYTES of earlier ones) is in memory.
Records in files are read no faster than the peer receives them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.net.dispatch import ConnectionClosed, Piece
from kafkalog_broker.net.response_stream import BUFFER_BYTES, ResponseStream
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.partition.file_handles import FileSlice

WRITE_BUFFER_BYTES = 64 << 10
"""Unsent bytes above which no further request is handled: asyncio's default."""

HELD_RESPONSES = 16
"""Limit on responses that are sent together. It also limits how long the first one is delayed."""

SMALL_BYTES = 4096
"""A response is held back only if it and the next request are at most this large. The next response is then ready
soon."""


class ResponseWriter:
    """Writes responses to a transport, and controls when the next request may be handled.

    Attributes:
        transport: Transport of the connection; None before it is made and after it is lost.
        held: Small responses that will be written together with the next one.
        writable: Future to await before writing more; None if nothing has to be awaited.
        last_progress: When bytes were last written, or read by the peer, in the loop's time.
    """

    __slots__ = (
        "_buffers", "_drained", "_is_paused", "_last_unread_bytes", "_loop", "_muted", "_streamed_bytes", "held",
        "last_progress", "transport", "writable",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, buffers: list[memoryview]) -> None:
        """`buffers` holds at most one spare buffer of BUFFER_BYTES, which all connections of the loop share."""
        self._loop = loop
        self._buffers = buffers
        self.held: list[bytes] = []
        self._is_paused = False  # the transport holds more than WRITE_BUFFER_BYTES
        self._muted: asyncio.TimerHandle | None = None  # while the client is throttled
        self._drained: asyncio.Future[None] | None = None  # `stream` waits until the transport is not paused
        self._streamed_bytes = 0  # bytes in memory of the response that `stream` writes
        self._last_unread_bytes = 0  # `unread_bytes` when the connection was last checked for idleness
        self.transport: asyncio.Transport | None = None
        self.writable: asyncio.Future[None] | None = None
        self.last_progress = loop.time()

    @property
    def unread_bytes(self) -> int:
        """Bytes in memory that the peer has not read."""
        return 0 if self.transport is None else self._streamed_bytes + self.transport.get_write_buffer_size()

    def pause(self) -> None:
        """Pause writing: the transport holds more than WRITE_BUFFER_BYTES."""
        self._is_paused = True
        if self.writable is None:
            self.writable = self._loop.create_future()

    def resume(self) -> None:
        """Resume writing: the peer has read the bytes in the transport, or the connection has ended."""
        self.last_progress = self._loop.time()
        self._is_paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._complete_writable()

    def mute(self, seconds: float) -> None:
        """Throttle the client: complete `writable` no earlier than after `seconds`. Other writes are not delayed."""
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._loop.call_later(seconds, self.unmute)
        if self.writable is None:
            self.writable = self._loop.create_future()

    def unmute(self) -> None:
        """End `mute`, because its time is over or the connection ends."""
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
            self._complete_writable()

    def note_progress(self) -> None:
        """Update `last_progress` if the peer has read any bytes since the previous call."""
        if self.writable is not None and self.unread_bytes != self._last_unread_bytes:
            self._last_unread_bytes = self.unread_bytes
            self.last_progress = self._loop.time()

    def write(self, pieces: Sequence[Any], waiting: Sequence[bytes | memoryview]) -> None:
        """Write a response, or hold it back until the next request has its response.

        Args:
            pieces: The response: bytes-like pieces.
            waiting: Received requests that are not handled yet.
        """
        held = self.held
        if len(pieces) == 1 and len(pieces[0]) <= SMALL_BYTES:
            if (
                waiting
                and len(waiting[0]) <= SMALL_BYTES
                and len(held) < HELD_RESPONSES - 1
                and self.writable is None  # otherwise the next request has to wait
            ):
                held.append(pieces[0])  # if handling the next request has to wait, `write_held` is called first
            elif held:
                held.append(pieces[0])
                self.write_held()
            elif self.transport is not None:
                self.last_progress = self._loop.time()
                self.transport.write(pieces[0])
        elif self.transport is not None:
            self.write_held()
            self.last_progress = self._loop.time()
            self.transport.writelines(pieces)

    def write_held(self) -> None:
        """Write the responses that are held back. Called before anything is awaited."""
        held = self.held
        if not held:
            return
        if self.transport is not None:
            self.last_progress = self._loop.time()
            self.transport.write(held[0] if len(held) == 1 else b"".join(held))
        held.clear()

    async def stream(self, pieces: Sequence[Piece]) -> None:
        """Write a response with file slices, or a large one that is encrypted, as fast as the peer reads it.

        Other requests run in between, however fast the peer reads.

        Raises:
            ConnectionClosed: If a file cannot be read.
        """
        self.write_held()
        self._streamed_bytes = sum(len(piece) for piece in pieces if not isinstance(piece, FileSlice))
        stream = ResponseStream(pieces)
        time_slice = TimeSlice()
        while self.transport is not None:
            if time_slice.is_over:
                await time_slice.wait_turn()
                if self.transport is None:
                    return
            if self._is_paused:  # a muted connection is not paused: the throttled response is sent immediately
                self._drained = self._loop.create_future()
                await self._drained
                continue
            buffer = self._buffers.pop() if self._buffers else np.empty(BUFFER_BYTES, np.uint8).data
            try:
                count = stream.fill(buffer)
            except BrokerError as error:
                raise ConnectionClosed(str(error), logging.ERROR) from None
            if count:
                self.last_progress = self._loop.time()
                self.transport.write(buffer[:count])
            if not self.transport.get_write_buffer_size():  # the operating system has copied all of the buffer
                self._buffers[:] = (buffer,)
            if count < len(buffer):
                self._streamed_bytes = 0
                return

    def _complete_writable(self) -> None:
        if self.writable is not None and not self._is_paused and self._muted is None:
            if not self.writable.done():
                self.writable.set_result(None)
            self.writable = None
