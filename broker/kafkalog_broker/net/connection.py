"""One connection: frames in, responses out in the same order, bounded memory.

One request of a connection is handled at a time, as Kafka does it, so the order of responses needs no bookkeeping. What
has been read ahead waits in a queue; when it is more than READ_AHEAD_BYTES, reading pauses until the queue is shorter.
A connection that has used up its slice of the event loop stands in line for a turn (`turn.Line`), so one that sends its
requests without waiting takes no more than its share.

When the peer does not read its responses, writing pauses and no further request is handled: at most one response (and
WRITE_BUFFER_BYTES of earlier ones) waits in memory. What of it lies in files, the records of a Fetch, is read no faster
than the peer takes it.

Responses to small requests that came together go together: sending, and waking up the peer, costs as much as handling
such a request. A response never waits for a request that waits for something itself.

A peer that ends its side of the connection still gets its complete requests handled, and their responses if it reads
them: a producer with acks=0 may send and close.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from kafkalog_broker.errors import BrokerError, MalformedRequest
from kafkalog_broker.net.dispatch import ConnectionClosed
from kafkalog_broker.net.loop_watch import NOTED_S, rest_of
from kafkalog_broker.net.response_stream import ResponseStream
from kafkalog_broker.protocol.api_registry import ConnectionInfo
from kafkalog_broker.protocol.frames import FRAME_OVERHEAD, PRODUCE, FrameAssembler
from kafkalog_broker.storage.partition.file_handles import FileSlice

if TYPE_CHECKING:
    from kafkalog_broker.net.listener import Network

_logger = logging.getLogger(__name__)

READ_AHEAD_BYTES = 64 << 10
"""Small pipelined requests are read many at a time; of large ones, one waits while one is handled."""

WRITE_BUFFER_BYTES = 64 << 10
"""Unsent bytes above which no further request is handled: what asyncio uses by default."""

HELD_RESPONSES = 16
"""How many responses go together at most: the first of them has waited half a millisecond then."""

SMALL_BYTES = 4096
"""A response is held back only when it is no larger, and the next request neither, so that it is soon handled."""

_ENDED: Any = object()
"""In place of what a request waits for: it has waited for nothing."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection. `info` is what handlers see of it."""

    def __init__(self, network: Network, listener: str) -> None:
        self.info = ConnectionInfo(listener=listener)
        self.turn_in_s = 0.0  # until requests are handled; set when it is admitted
        self._network = network
        self._loop = network.loop
        self._line, self._pool = network.line, network.memory
        self._assembler = FrameAssembler(network.receive_buffer, network.limits.max_request_bytes, network.memory)
        self._frames: deque[bytes | memoryview] = deque()
        self._queued_bytes = 0  # of the frames that wait, as they are taken from the pool
        self._in_work_bytes = 0  # of the frame that is handled
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._wakeup: asyncio.Future[None] | None = None
        self._can_write: asyncio.Future[None] | None = None  # set while writing is paused
        self._held: list[bytes] = []  # responses that wait for the next one to go with
        self._reading_paused = False
        self._ending = False  # no further frames will come, or none are wanted
        self._busy = False  # a request is being handled
        self._waits = False  # for its turn, under max.connection.creation.rate
        self._unsent_bytes = 0  # when idleness was last looked at
        self._last_active = self._loop.time()

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self.info.host, self.info.port = _address(transport.get_extra_info("peername"))
        self.info.local_host, self.info.local_port = _address(transport.get_extra_info("sockname"))
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        refusal = self._network.admit(self)
        if refusal is not None:
            self._ending = True
            transport.abort()
            return
        self._waits = self.turn_in_s > 0
        self._task = self._loop.create_task(self._serve(), name=f"connection {self.info}")
        self._task.add_done_callback(self._drop_frames)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._assembler.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._line.round_end = 0.0
        self._last_active = self._loop.time()
        if self._ending:
            return
        assembler, frames = self._assembler, self._frames
        try:
            self._queued_bytes += assembler.received(nbytes, frames)
        except (MalformedRequest, MemoryError) as error:
            self._close_at_once(str(error) or "no memory for the request", logging.WARNING)
            return
        if assembler.has_more:
            self._pause_reading()
            self._wake_up()
        elif frames:
            if self._queued_bytes > READ_AHEAD_BYTES and (self._busy or len(frames) > 1):
                self._pause_reading()
            self._wake_up()
        elif self._network.reads.over(nbytes):
            self._pause_reading()
            self._network.reads.wait(self._read_on)

    def eof_received(self) -> bool:
        """The peer sends nothing more. True keeps the transport open until what it has sent is handled."""
        if self._task is None:
            return False
        self._ending = True
        self._tell_closed()
        self._wake_up()
        return True

    def pause_writing(self) -> None:
        if self._can_write is None:
            self._can_write = self._loop.create_future()
            self._network.unread.waits(self)

    def resume_writing(self) -> None:
        self._last_active = self._loop.time()
        self._network.unread.read(self)
        if self._can_write is not None:
            if not self._can_write.done():
                self._can_write.set_result(None)
            self._can_write = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._ending = True
        self._transport = None
        self._network.gone(self)
        self._tell_closed()
        self.resume_writing()
        self._wake_up()
        if self._waits and self._task is not None:
            self._task.cancel()
        if _logger.isEnabledFor(logging.DEBUG):
            _logger.debug("connection %s ended%s", self.info, f": {exc}" if exc else "")

    # -- called by the network

    def stop(self) -> None:
        """Finish the request that is being handled, take no other, close."""
        self._ending = True
        self._drop_frames()
        self._tell_closed()
        self._wake_up()
        if self._waits:
            self.abort()

    def abort(self) -> None:
        """Close without waiting for anything."""
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    @property
    def task(self) -> asyncio.Task[None] | None:
        return self._task

    def idle_since(self) -> float | None:
        """When bytes last moved, in the loop's time; None while a request is being handled."""
        if self._busy and self._can_write is None:
            return None
        if self._can_write is not None and self._transport is not None:
            unsent = self._transport.get_write_buffer_size()
            if unsent != self._unsent_bytes:  # the peer reads, if slowly
                self._unsent_bytes = unsent
                self._last_active = self._loop.time()
        return self._last_active

    @property
    def unread_bytes(self) -> int:
        """What the peer has not read of its responses."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close_unread(self, held: int, bound: int) -> None:
        """Close a connection whose peer does not read, to have its memory."""
        self._close_at_once(
            f"its peer has not read a byte for a second, {held} bytes wait for it, and all connections together hold "
            f"more than {bound}",
            logging.WARNING,
        )

    def close_idle(self) -> None:
        """Close a connection on which nothing has moved for connections.max.idle.ms."""
        self._close_at_once("nothing sent or read for connections.max.idle.ms", logging.INFO)

    # -- the life of a connection

    async def _serve(self) -> None:
        dispatch, line, pool, watch = self._network.dispatch, self._line, self._pool, self._network.watch
        frames, limited = self._frames, pool.limited
        now, slice_end = 0.0, 0.0  # 0: it has waited for something, so a slice begins
        try:
            if self._waits:
                await asyncio.sleep(self.turn_in_s)
                self._waits = False
            while True:
                if not frames:
                    if self._assembler.has_more and self._next_frames():
                        continue
                    if self._ending and not self._assembler.has_more:
                        break
                    self._write_held()
                    self._wakeup = self._loop.create_future()
                    await self._wakeup
                    self._wakeup = None
                    slice_end = 0.0
                    continue
                if now >= slice_end:
                    if slice_end:
                        self._write_held()
                        slice_end = await line.go_on()
                        now = perf_counter()
                    else:
                        now = perf_counter()
                        slice_end = line.slice_now(now)
                        if not slice_end:
                            self._write_held()
                            slice_end = await line.begin()
                            now = perf_counter()
                    if not frames:  # it was told to end meanwhile
                        continue
                frame = frames.popleft()
                cost = len(frame) + FRAME_OVERHEAD
                self._queued_bytes -= cost
                if self._reading_paused and self._queued_bytes <= READ_AHEAD_BYTES and not self._assembler.has_more:
                    self._resume_reading()
                if limited:
                    if frame[:2] == PRODUCE:
                        self._in_work_bytes = cost
                    else:  # as in Kafka: what has no records does not need its frame for long
                        pool.give_back(cost)
                self._busy = True
                request = dispatch(frame, self.info)
                began = now
                waits_for = _ENDED
                try:
                    waits_for = request.send(None)
                except StopIteration as done:
                    pieces = done.value
                now = perf_counter()
                if waits_for is not _ENDED or now - began > NOTED_S:
                    api = bytes(frame[:2])  # not a view, which would keep the frame
                    if now - began > NOTED_S:
                        watch.note(api, now - began)
                del frame  # the records in it need not stay until it is answered, or the next one comes
                if waits_for is not _ENDED:
                    self._write_held()
                    pieces = await rest_of(request, waits_for, watch, api)
                    slice_end = 0.0
                del request
                if limited and self._in_work_bytes:
                    self._in_work_bytes = 0
                    pool.give_back(cost)
                if pieces is not None and self._transport is not None:
                    if len(pieces) > 2 and any(isinstance(piece, FileSlice) for piece in pieces):
                        await self._stream(pieces)
                    else:
                        self._respond(pieces)
                    del pieces
                    if self._can_write is not None:
                        await self._can_write
                        slice_end = 0.0
                self._busy = False
        except ConnectionClosed as closed:
            self._network.closed_lines.log(closed.level, "connection %s closed: %s", self.info, closed)
        except MalformedRequest as error:
            self._network.closed_lines.log(logging.WARNING, "connection %s closed: %s", self.info, error)
        except Exception as error:  # noqa: BLE001 - a defect of one connection must not be silent, nor touch others
            _logger.error("connection %s closed: %s: %s", self.info, type(error).__name__, error)
        finally:
            self._ending = True
            self._drop_frames()
            if self._transport is not None:
                self._write_held()
                self._transport.close()

    def _next_frames(self) -> bool:
        """Make frames of what has been read. False when there is no memory for one: then it is tried again later."""
        self._queued_bytes += self._assembler.next_frames(self._frames)
        if self._frames:
            return True
        if self._assembler.has_more:
            self._pool.call_when_free(self._wake_up)
        else:  # a frame has begun: its rest is to be read
            self._resume_reading()
        return False

    def _drop_frames(self, _: object = None) -> None:
        """Forget what waits; its memory goes back to the pool."""
        self._frames.clear()
        self._assembler.close()
        self._pool.forget(self._wake_up)
        self._network.reads.forget(self._read_on)
        size, self._queued_bytes, self._in_work_bytes = self._queued_bytes + self._in_work_bytes, 0, 0
        if self._pool.limited:
            self._pool.give_back(size)

    def _respond(self, pieces: list[Any]) -> None:
        """Write the response in `pieces`, or hold it back for the next one."""
        assert self._transport is not None
        held, frames = self._held, self._frames
        if len(pieces) == 1 and len(pieces[0]) <= SMALL_BYTES:
            held.append(pieces[0])
            if frames and len(frames[0]) <= SMALL_BYTES and len(held) < HELD_RESPONSES:
                return  # should the next request wait for something, `_serve` writes first
            self._write_held()
        else:
            self._write_held()
            self._last_active = self._loop.time()
            self._transport.writelines(pieces)

    async def _stream(self, pieces: list[Any]) -> None:
        """Write a response with slices of files in it, as the peer takes it."""
        self._write_held()
        stream, buffers = ResponseStream(pieces), self._network.send_buffer
        while self._transport is not None:
            if self._can_write is not None:
                await self._can_write
                continue
            buffer = buffers.take()
            try:
                count = stream.fill(buffer)
            except BrokerError as error:
                raise ConnectionClosed(str(error), logging.ERROR) from None
            if count:
                self._last_active = self._loop.time()
                self._transport.write(buffer[:count])
            if not self._transport.get_write_buffer_size():  # all of it is with the operating system
                buffers.give_back(buffer)
            if count < len(buffer):
                return

    def _write_held(self) -> None:
        """Before whatever waits: a response waits for no longer than the next request is handled at once."""
        held = self._held
        if not held:
            return
        if self._transport is not None:
            self._last_active = self._loop.time()
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))
        held.clear()

    def _wake_up(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def _tell_closed(self) -> None:
        if not self.info.closed:
            for callback in self.info.mark_closed():
                callback()

    def _read_on(self) -> None:
        """The rest of a frame, after a round in which all together had read enough."""
        if self._reading_paused and not self._assembler.has_more and self._queued_bytes <= READ_AHEAD_BYTES:
            self._resume_reading()  # else `_serve` does when the queue is shorter

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        self._reading_paused = False
        if self._transport is not None and not self._ending and not self._transport.is_closing():
            self._transport.resume_reading()

    def _close_at_once(self, why: str, level: int) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._network.closed_lines.log(level, "connection %s closed: %s", self.info, why)
        self._ending = True
        self._drop_frames()
        self._transport.abort()


def _address(name: Any) -> tuple[str, int]:
    """Host and port of a socket's name; a peer that is gone already has none."""
    if isinstance(name, tuple) and len(name) >= 2:
        return str(name[0]), int(name[1])
    return "unknown", 0
