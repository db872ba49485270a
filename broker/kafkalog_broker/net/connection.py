"""A connection: frames in, responses out in the same order, bounded memory.

One request of a connection is handled at a time, as Kafka does it, so the order of responses needs no bookkeeping. What
has been read ahead waits in a queue of bounded size (`RequestReader`). A connection that has used up its slice of the
event loop stands in line for a turn (`turn.Line`), so one that sends its requests without waiting gets its share only.
When the peer does not read its responses, no further request is handled (`response_writer`).

A peer that ends its side of the connection still gets its complete requests handled, and their responses if it reads
them: a producer with acks=0 may send and close.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from types import CoroutineType
from typing import Any, cast

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.net.dispatch import ConnectionClosed, Dispatch
from kafkalog_broker.net.loop_watch import NOTED_S, LoopWatch
from kafkalog_broker.net.response_writer import WRITE_BUFFER_BYTES, ResponseWriter, SendBuffer, lies_in_files
from kafkalog_broker.net.sasl_gate import SaslGate
from kafkalog_broker.protocol.api_registry import ConnectionInfo
from kafkalog_broker.protocol.frames import FRAME_OVERHEAD, PRODUCE, FrameAssembler, MemoryPool
from kafkalog_broker.runtime.fair_scheduling import NOT_BEGUN, FairQueue, timed
from kafkalog_broker.runtime.process import LogRate

# Requests as they are read: they wait in a queue. When more than READ_AHEAD_BYTES wait, reading pauses until the
# queue is shorter.

READ_AHEAD_BYTES = 64 << 10
"""Small pipelined requests are read many at a time; of large ones, one waits while one is handled."""


ROUND_BYTES = 2 << 20
"""Some 3 ms. A request of Produce has 1 MB by default."""

READERS = 8
"""Connections that read on in one round: each reads one piece at least before the round is over for it."""


class ReadTurns:
    """Who reads on in a round. The rest of a frame is read in pieces (`frames.READ_BYTES`), and when a round has read
    ROUND_BYTES, connections whose frame is not complete read on in later rounds, in the order in which they came. For
    one event loop, in its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = ROUND_BYTES
        self._waiting: dict[Callable[[], None], None] = {}
        self._moving = False

    def over(self, count: int) -> bool:
        """`count` bytes of a frame that is not complete were read; whether no more are to be read in this round."""
        if not self._moving:
            self._moving = True
            self._loop.call_soon(self._next_round)
        self._left -= count
        return self._left <= 0

    def wait(self, read_on: Callable[[], None]) -> None:
        """Call `read_on` in a later round. After `over` has said so."""
        self._waiting[read_on] = None

    def forget(self, read_on: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._waiting.pop(read_on, None)

    def _next_round(self) -> None:
        self._left = ROUND_BYTES
        for _ in range(min(READERS, len(self._waiting))):
            read_on = next(iter(self._waiting))
            del self._waiting[read_on]
            read_on()
        self._moving = bool(self._waiting)
        if self._moving:
            self._loop.call_soon(self._next_round)


class RequestReader:
    """Reads from `transport`, the connection's while it is there, None before and after.

    `frames` is the queue, to be looked at; `take` takes the first.
    """

    __slots__ = (
        "_in_work_bytes", "_loop", "_paused", "_pool", "_turns", "_waiting_bytes", "_wakeup",
        "assembler", "buffer", "ended", "frames", "transport",
    )  # fmt: skip

    def __init__(self, assembler: FrameAssembler, pool: MemoryPool, turns: ReadTurns) -> None:
        self.assembler, self._pool, self._turns = assembler, pool, turns
        self._loop = asyncio.get_running_loop()
        self._wakeup: asyncio.Future[None] | None = None
        self._waiting_bytes = 0  # of the frames that wait, as they are taken from the pool
        self._in_work_bytes = 0  # of the frame that is handled
        self._paused = False
        self.frames: deque[bytes | memoryview] = deque()
        self.transport: asyncio.Transport | None = None
        self.ended = False
        """No further frames will come, or none are wanted."""
        self.buffer = assembler.buffer
        """Where the next bytes that are read go."""

    def received(self, count: int, busy: bool) -> None:
        """So many bytes have come into the buffer; `busy`: a request is being handled.

        Raises MalformedRequest, or MemoryError; then nothing more can be read.
        """
        if self.ended:
            return
        frames = self.frames
        self._waiting_bytes += self.assembler.received(count, frames)
        if self.assembler.has_more:
            self._pause()
            self.wake_up()
        elif frames:
            if self._waiting_bytes > READ_AHEAD_BYTES and (busy or len(frames) > 1):
                self._pause()
            self.wake_up()
        elif self._turns.over(count):
            self._pause()
            self._turns.wait(self._read_on)

    def more(self) -> asyncio.Future[None]:
        """Done when there may be more, or the end."""
        self._wakeup = self._loop.create_future()
        return self._wakeup

    def wake_up(self) -> None:
        """Whoever waits for `more` looks again."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def make_frames(self) -> bool:
        """Make frames of what has been read; whether there are any. Where there is no memory for one, `more` is done as
        soon as there is."""
        self._waiting_bytes += self.assembler.next_frames(self.frames)
        if self.frames:
            return True
        if self.assembler.has_more:
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
        """Forget what waits; its memory goes back to the pool."""
        self._pool.forget(self.wake_up)
        self._turns.forget(self._read_on)
        self.frames.clear()
        self.assembler.close()
        size, self._waiting_bytes, self._in_work_bytes = self._waiting_bytes + self._in_work_bytes, 0, 0
        if self._pool.limited:
            self._pool.give_back(size)

    def _pause(self) -> None:
        if not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def _read_on(self) -> None:
        if self._paused and not self.assembler.has_more and self._waiting_bytes <= READ_AHEAD_BYTES:
            self._resume()

    def _resume(self) -> None:
        self._paused = False
        if self.transport is not None and not self.ended and not self.transport.is_closing():
            self.transport.resume_reading()


# Responses that peers do not read: bounded per connection by the one response that waits, and here in all.
#
# Kafka has no such bound. A response that lies in files costs one buffer (`ResponseStream`), so what counts here
# are the others: a few kB as a rule, megabytes where a client asks for everything there is.

UNREAD_BYTES = 32 << 20
"""Bytes of responses that all connections together may hold for longer than CHECK_S."""

CHECK_S = 1.0
"""A peer that reads nothing for so long while there is too much is closed."""


class UnreadResponses:
    """The connections that wait for their peers to read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: dict[Connection, int] = {}  # bytes, when it was last looked at
        self._total = 0
        self._check: asyncio.TimerHandle | None = None

    def waits(self, connection: Connection) -> None:
        """`connection` writes no further before its peer reads."""
        self._hold(connection, connection.unread_bytes)
        if self._total > UNREAD_BYTES and self._check is None:
            self._check = self._loop.call_later(CHECK_S, self.close_those_that_do_not_read)

    def read(self, connection: Connection) -> None:
        """The peer has read, or the connection has ended."""
        self._total -= self._held.pop(connection, 0)

    def close_those_that_do_not_read(self) -> None:
        """While there is too much: those that have read nothing since they were last looked at, the largest first."""
        self._check = None
        idle = []
        for connection, before in list(self._held.items()):
            held = connection.unread_bytes
            if held == before:
                idle.append((held, connection))
            self._hold(connection, held)
        for held, connection in sorted(idle, key=lambda one: -one[0]):
            if self._total <= UNREAD_BYTES:
                break
            self.read(connection)
            connection.close_unread(held, UNREAD_BYTES)
        if self._total > UNREAD_BYTES:
            self._check = self._loop.call_later(CHECK_S, self.close_those_that_do_not_read)

    def stop(self) -> None:
        """Look no more."""
        if self._check is not None:
            self._check.cancel()

    def _hold(self, connection: Connection, size: int) -> None:
        self._total += size - self._held.get(connection, 0)
        self._held[connection] = size


_logger = logging.getLogger(__name__)

AUTHENTICATE_S = 30.0
"""How long a peer may take until it has authenticated by SASL, the handshake of TLS included. Until then it holds its
socket and what it has sent of one small request. (Kafka bounds it by connections.max.idle.ms, 10 minutes after each
byte.)"""


@dataclass(frozen=True, slots=True)
class Shared:
    """State shared by the connections of a network.

    admit: count a new connection, and say why there is no room for it, or None. gone: it has ended.
    """

    dispatch: Dispatch
    admit: Callable[[Connection], str | None]
    gone: Callable[[Connection], None]
    loop: asyncio.AbstractEventLoop
    line: FairQueue
    memory: MemoryPool
    watch: LoopWatch
    reads: ReadTurns
    unread: UnreadResponses
    closed_lines: LogRate
    receive_buffer: memoryview
    send_buffer: SendBuffer


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection. `info` is what handlers see of it."""

    def __init__(
        self,
        shared: Shared,
        listener: str,
        max_request_bytes: int,
        gate: Callable[[Dispatch, Callable[[str], None]], SaslGate] | None = None,
    ) -> None:
        """gate: made for each connection of a listener with SASL, of what serves requests and who gets the
        principal."""
        self.info = ConnectionInfo(listener=listener)
        self.turn_in_s = 0.0  # until requests are handled, or it is closed where it is refused; set by `admit`
        self.task: asyncio.Task[None] | None = None
        """Handles its requests; None when it was not admitted."""
        self._shared, self._loop, self._line = shared, shared.loop, shared.line
        self._max_request_bytes = max_request_bytes
        self._dispatch: Dispatch = shared.dispatch
        if gate is not None:
            self._dispatch = guard = gate(shared.dispatch, self.authenticated)
            max_request_bytes = min(max_request_bytes, guard.max_request_bytes)
        assembler = FrameAssembler(shared.receive_buffer, max_request_bytes, shared.memory)
        self.requests = RequestReader(assembler, shared.memory, shared.reads)
        self._writer = ResponseWriter(shared.loop, shared.send_buffer)
        self.info.mute = self._writer.mute
        self._transport: asyncio.Transport | None = None
        self._busy = False  # a request is being handled
        self._waits = False  # for its turn, under max.connection.creation.rate
        self._last_read = self._loop.time()
        self._deadline: asyncio.TimerHandle | None = None  # for its authentication

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._transport = self.requests.transport = self._writer.transport = transport
        self.info.host, self.info.port = _address(transport.get_extra_info("peername"))
        self.info.local_host, self.info.local_port = _address(transport.get_extra_info("sockname"))
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        refusal = self._shared.admit(self)
        if refusal is not None:
            self.requests.ended = True
            if self.turn_in_s:
                transport.pause_reading()
                self._loop.call_later(self.turn_in_s, self.abort)
            else:
                transport.abort()
            return
        self._waits = self.turn_in_s > 0
        if self._dispatch is not self._shared.dispatch:
            why = f"it has not authenticated in {AUTHENTICATE_S:.0f} s"
            self._deadline = self._loop.call_later(AUTHENTICATE_S, self._close_at_once, why, logging.WARNING)
        self.task = self._loop.create_task(self._serve(), name=f"connection {self.info}")
        self.task.add_done_callback(lambda _: self.requests.drop())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.requests.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._line.round_end = 0.0
        self._last_read = self._loop.time()
        try:
            self.requests.received(nbytes, self._busy)
        except (MalformedRequest, MemoryError) as error:
            self._close_at_once(str(error) or "no memory for the request", logging.WARNING)

    def eof_received(self) -> bool:
        """The peer sends nothing more. True keeps the transport open until what it has sent is handled."""
        if self.task is None:
            return False
        self.requests.ended = True
        self._peer_has_ended()
        return True

    def pause_writing(self) -> None:
        self._writer.pause()
        self._shared.unread.waits(self)

    def resume_writing(self) -> None:
        self._shared.unread.read(self)
        self._writer.resume()

    def authenticated(self, principal: str) -> None:
        """The peer has shown who it is: with a certificate, without one, or by SASL."""
        self.info.principal = principal
        self._forget_deadline()
        self.requests.assembler.allow(self._max_request_bytes)

    def secured(self, principal: str) -> None:
        """The handshake of TLS is done. Where SASL comes after it, that names the principal."""
        if self._dispatch is self._shared.dispatch:
            self.authenticated(principal)

    def not_secured(self, why: str) -> None:
        """The connection ends before its first request."""
        self._shared.closed_lines.log(logging.WARNING, "connection %s closed: %s", self.info, why)

    def connection_lost(self, exc: Exception | None) -> None:
        self.requests.ended = True
        self._forget_deadline()
        self._transport = self.requests.transport = self._writer.transport = None
        self._dispatch = self._shared.dispatch  # not the gate, which knows this connection
        self._shared.gone(self)
        self._peer_has_ended()
        self.resume_writing()
        if self._waits and self.task is not None:
            self.task.cancel()
        if _logger.isEnabledFor(logging.DEBUG):
            _logger.debug("connection %s ended%s", self.info, f": {exc}" if exc else "")

    # -- called by the network

    def stop(self) -> None:
        """Finish the request that is being handled, take no other, close."""
        self.requests.ended = True
        self.requests.drop()
        self._tell_closed()
        self.requests.wake_up()
        if self._waits:
            self.abort()

    def abort(self) -> None:
        """Close without waiting for anything."""
        if self.task is not None:
            self.task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def idle_since(self) -> float | None:
        """When bytes last moved, in the loop's time; None while a request is being handled."""
        if self._busy and self._writer.can_write is None:
            return None
        self._writer.look_at_unsent()
        return max(self._last_read, self._writer.last_moved)

    @property
    def unread_bytes(self) -> int:
        """Bytes of responses that the peer has not read."""
        return self._writer.unread_bytes

    def close_unread(self, held: int, bound: int) -> None:
        """Close a connection whose peer does not read, to have its memory."""
        self._close_at_once(
            f"its peer has not read a byte for a second, {held} bytes wait for it, and all connections together hold "
            f"more than {bound}",
            logging.WARNING,
        )

    def close_idle(self, before: float) -> bool:
        """Close a connection on which nothing has moved since `before`, in the loop's time: connections.max.idle.ms.
        True if it is one."""
        since = self.idle_since()
        is_idle = since is not None and since < before
        if is_idle:
            self._close_at_once("nothing sent or read for connections.max.idle.ms", logging.INFO)
        return is_idle

    # -- the life of a connection

    async def _serve(self) -> None:
        try:
            if self._waits:
                await asyncio.sleep(self.turn_in_s)
                self._waits = False
            await self._serve_requests()
        except ConnectionClosed as closed:
            self._shared.closed_lines.log(closed.level, "connection %s closed: %s", self.info, closed)
            if closed.last is not None:
                self._writer.write(closed.last, ())
        except MalformedRequest as error:
            self._shared.closed_lines.log(logging.WARNING, "connection %s closed: %s", self.info, error)
        except Exception as error:  # noqa: BLE001 - a defect of one connection must not be silent, nor touch others
            _logger.error("connection %s closed: %s: %s", self.info, type(error).__name__, error)
        finally:
            self.requests.ended = True
            self.requests.drop()
            if self._transport is not None:
                self._writer.write_held()
                self._transport.close()

    async def _serve_requests(self) -> None:
        dispatch, line, watch = self._dispatch, self._line, self._shared.watch
        requests, writer = self.requests, self._writer
        frames, assembler, limited = requests.frames, requests.assembler, self._shared.memory.limited
        now, slice_end = 0.0, 0.0  # 0: it has waited for something, so a slice begins
        while True:
            if not frames and not (assembler.has_more and requests.make_frames()):
                if requests.ended and not assembler.has_more:
                    return
                if writer.held:
                    writer.write_held()
                await requests.more()
                slice_end = 0.0
                continue
            if now >= slice_end:
                now = perf_counter()
                if slice_end:
                    writer.write_held()
                    slice_end = await line.go_on()
                    now = perf_counter()
                else:
                    slice_end = line.slice_now(now)
                    if not slice_end:
                        writer.write_held()
                        slice_end = await line.begin()
                        now = perf_counter()
                if not frames:  # it was asked to end meanwhile
                    continue
            frame = requests.take()
            self._busy = True
            began = now
            waits_for: Any = NOT_BEGUN
            served: Any = dispatch(frame, self.info)
            if type(served) is CoroutineType:
                try:
                    waits_for = served.send(None)
                except StopIteration as done:
                    pieces = done.value
            else:
                pieces = served
            now = perf_counter()
            if waits_for is not NOT_BEGUN or now - began > NOTED_S:
                api = bytes(frame[:2])  # not a view, which would keep the frame
                watch.note(api, now - began)
            del frame  # the records in it need not stay until it is answered, or the next one comes
            if waits_for is not NOT_BEGUN:
                writer.write_held()
                pieces = await timed(served, partial(watch.note, api), waits_for)
                slice_end = 0.0
            del served
            if limited:
                requests.done()
            if pieces is not None and self._transport is not None:
                if len(pieces) > 2 and lies_in_files(pieces):
                    await writer.stream(pieces)
                else:
                    writer.write(pieces, frames)
                del pieces
            if writer.can_write is not None:
                await writer.can_write
                slice_end = 0.0
            self._busy = False

    def _peer_has_ended(self) -> None:
        self._tell_closed()
        self.requests.wake_up()

    def _tell_closed(self) -> None:
        self._writer.unmute()
        if not self.info.closed:
            for callback in self.info.mark_closed():
                callback()

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_at_once(self, why: str, level: int) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._shared.closed_lines.log(level, "connection %s closed: %s", self.info, why)
        self.requests.ended = True
        self.requests.drop()
        self._transport.abort()


def _address(name: Any) -> tuple[str, int]:
    if isinstance(name, tuple) and len(name) >= 2:
        return str(name[0]), int(name[1])
    return "unknown", 0
