"""The responses of one connection on their way to its peer.

Responses to small requests that came together go together: sending, and waking up the peer, costs as much as handling
such a request. While the peer does not read, at most one response (and WRITE_BUFFER_BYTES of earlier ones) waits in
memory. What of it lies in files, the records of a Fetch, is read no faster than the peer takes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.net.dispatch import ConnectionClosed
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.partition.file_handles import FileSlice

# Responses that are partly in files: a consumer that asks for 50 MB and then does not read costs one buffer. It is used
# again for the next part, so it stays in the processor's cache; a part that the peer did not take at once keeps it.

BUFFER_BYTES = 256 << 10
"""Bytes that are read and written at once: they fit a core's cache, and is long enough that the calls do not count."""


class ResponseStream:
    """The pieces of a response, bytes-like or FileSlice, as one stream of bytes."""

    def __init__(self, pieces: Iterable[Any]) -> None:
        self._pieces = iter(pieces)
        self._piece: Any = b""
        self._at = 0

    def fill(self, buffer: memoryview) -> int:
        """Put the next bytes into `buffer`; how many, less than it holds only at the end, 0 after it. Raises
        BrokerError kafka_storage_error when a file cannot be read, or has become shorter."""
        filled = 0
        while filled < len(buffer):
            left = len(self._piece) - self._at
            if not left:
                following = next(self._pieces, None)
                if following is None:
                    break
                self._piece, self._at = following, 0
                continue
            room = buffer[filled:]
            if isinstance(self._piece, FileSlice):
                count = _read(self._piece, room, self._at)
            else:
                count = min(left, len(room))
                room[:count] = memoryview(self._piece)[self._at : self._at + count]
            self._at += count
            filled += count
        return filled


def _read(piece: FileSlice, room: memoryview, at: int) -> int:
    where = f"of [{piece.position}, {piece.position + piece.size}) of a segment"
    try:
        count = piece.read_into(room, at)
    except OSError as error:
        raise BrokerError(ErrorCode.kafka_storage_error, f"byte {at} {where} cannot be read: {error}") from error
    if count == 0:
        raise BrokerError(ErrorCode.kafka_storage_error, f"the file ends at byte {at} {where}")
    return count


WRITE_BUFFER_BYTES = 64 << 10
"""Unsent bytes above which no further request is handled: what asyncio uses by default."""

HELD_RESPONSES = 16
"""How many responses go together at most: the first of them has waited half a millisecond then."""

SMALL_BYTES = 4096
"""A response is held back only when it is no larger, and the next request neither, so that it is soon handled."""


class ResponseWriter:
    """Writes to `transport`, the connection's while it is there, None before and after."""

    __slots__ = (
        "_buffers", "_loop", "_muted", "_paused", "_streamed_bytes", "_taken", "_unsent_bytes", "can_write", "held",
        "last_moved", "transport",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, buffers: list[memoryview]) -> None:
        """buffers: the one of BUFFER_BYTES that all connections of the loop fill in turn, while nobody uses it."""
        self._loop, self._buffers = loop, buffers
        self.held: list[bytes] = []  # responses that wait for the next one to go with
        self._paused = False  # the transport holds too much
        self._muted: asyncio.TimerHandle | None = None  # until when
        self._taken: asyncio.Future[None] | None = None  # `stream` waits for the transport
        self._streamed_bytes = 0  # in memory, of the response that `stream` writes
        self._unsent_bytes = 0  # when idleness was last looked at
        self.transport: asyncio.Transport | None = None
        self.can_write: asyncio.Future[None] | None = None
        """To be awaited before anything more is written; None when there is nothing to wait for."""
        self.last_moved = loop.time()
        """When something was last written or taken by the peer, in the loop's time."""

    @property
    def unread_bytes(self) -> int:
        return 0 if self.transport is None else self._streamed_bytes + self.transport.get_write_buffer_size()

    def pause(self) -> None:
        """The transport holds more than WRITE_BUFFER_BYTES."""
        self._paused = True
        if self.can_write is None:
            self.can_write = self._loop.create_future()

    def resume(self) -> None:
        """The peer has read what the transport held, or will read nothing more."""
        self.last_moved = self._loop.time()
        self._paused = False
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)
        self._go_on()

    def mute(self, seconds: float) -> None:
        """A throttled client: `can_write` is done no sooner. What is written until it is awaited goes out at once."""
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._loop.call_later(seconds, self.unmute)
        if self.can_write is None:
            self.can_write = self._loop.create_future()

    def unmute(self) -> None:
        """The time is over, or the connection ends."""
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
            self._go_on()

    def _go_on(self) -> None:
        if self.can_write is not None and not self._paused and self._muted is None:
            if not self.can_write.done():
                self.can_write.set_result(None)
            self.can_write = None

    def look_at_unsent(self) -> None:
        """A peer that has read since the last look moves, if slowly."""
        if self.can_write is not None and self.unread_bytes != self._unsent_bytes:
            self._unsent_bytes = self.unread_bytes
            self.last_moved = self._loop.time()

    def write(self, pieces: list[Any], waiting: Sequence[bytes | memoryview]) -> None:
        """Write a response, or hold it back for the next one when the first of the requests `waiting` soon has it."""
        held = self.held
        if len(pieces) == 1 and len(pieces[0]) <= SMALL_BYTES:
            if (
                waiting
                and len(waiting[0]) <= SMALL_BYTES
                and len(held) < HELD_RESPONSES - 1
                and self.can_write is None  # else the next request has to wait
            ):
                held.append(pieces[0])  # should the next request wait for something, `write_held` is called first
            elif held:
                held.append(pieces[0])
                self.write_held()
            elif self.transport is not None:
                self.last_moved = self._loop.time()
                self.transport.write(pieces[0])
        elif self.transport is not None:
            self.write_held()
            self.last_moved = self._loop.time()
            self.transport.writelines(pieces)

    def write_held(self) -> None:
        """Before whatever waits: a response waits for no longer than the next request is handled at once."""
        held = self.held
        if not held:
            return
        if self.transport is not None:
            self.last_moved = self._loop.time()
            self.transport.write(held[0] if len(held) == 1 else b"".join(held))
        held.clear()

    async def stream(self, pieces: list[Any]) -> None:
        """Write a response with slices of files, or a large one that is to be encrypted, as the peer takes it; others
        have their turn in between, however fast that is. ConnectionClosed when it cannot be read."""
        self.write_held()
        self._streamed_bytes = sum(len(piece) for piece in pieces if not isinstance(piece, FileSlice))
        stream, turn = ResponseStream(pieces), TimeSlice()
        while self.transport is not None:
            if turn.over:
                await turn.next()
                if self.transport is None:
                    return
            if self._paused:  # muted or not: an answer that mutes comes at once
                self._taken = self._loop.create_future()
                await self._taken
                continue
            buffer = self._buffers.pop() if self._buffers else np.empty(BUFFER_BYTES, np.uint8).data
            try:
                count = stream.fill(buffer)
            except BrokerError as error:
                raise ConnectionClosed(str(error), logging.ERROR) from None
            if count:
                self.last_moved = self._loop.time()
                self.transport.write(buffer[:count])
            if not self.transport.get_write_buffer_size():  # all of it is with the operating system
                self._buffers[:] = (buffer,)
            if count < len(buffer):
                self._streamed_bytes = 0
                return
