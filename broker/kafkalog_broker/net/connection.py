"""A connection: frames in, responses out in the same order, bounded memory.

One request of a connection is handled at a time, as Kafka does it. A connection that has used up its slice of the event
loop stands in line for a turn (`FairQueue`), so one that sends its requests without waiting gets its share only. When
the peer does not read its responses, no further request is handled (`response_writer`).

A peer that ends its side of the connection still gets its complete requests handled, and their responses if it reads
them: a producer with acks=0 may send and close.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from time import perf_counter
from types import CoroutineType
from typing import Any, cast

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.net.dispatch import ConnectionClosed, Dispatch, Gate
from kafkalog_broker.net.loop_watch import NOTED_S, LoopWatch
from kafkalog_broker.net.request_reader import RECEIVE_BUFFER_BYTES, MemoryPool, ReadTurns, RequestReader
from kafkalog_broker.net.response_writer import BUFFER_BYTES, WRITE_BUFFER_BYTES, ResponseWriter
from kafkalog_broker.protocol.request import ConnectionInfo
from kafkalog_broker.runtime.byte_budget import Lease
from kafkalog_broker.runtime.fair_scheduling import NOT_BEGUN, fair_queue, timed
from kafkalog_broker.runtime.process import LogRate
from kafkalog_broker.storage.partition.file_handles import FileSlice

# Responses that peers do not read: bounded per connection by the one response that waits, and here in all. Kafka has no
# such bound. A response that lies in files costs one buffer (`ResponseStream`), so the others count here: a few kB as a
# rule, megabytes where a client asks for everything there is.

UNREAD_BYTES = 32 << 20  # bytes of responses that all connections together may hold for longer than CHECK_S
# Responses with remote records hold leases of a smaller budget, which is full while other reads wait for it.

CHECK_S = 1.0  # a peer that reads nothing for so long while there is too much is closed


class UnreadResponses:
    """The connections that wait for their peers to read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: dict[Connection, int] = {}  # bytes, when it was last looked at
        self._total = 0
        self._check: asyncio.TimerHandle | None = None

    def waits(self, connection: Connection) -> None:
        """`connection` writes nothing more before its peer reads."""
        self._hold(connection, connection.unread_bytes)
        if self._check is None and (self._total > UNREAD_BYTES or connection.leases):
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
            if self._total > UNREAD_BYTES:
                why = f"all connections together hold more than {UNREAD_BYTES}"
            elif any(lease.is_wanted for lease in connection.leases):
                why = "other reads of remote storage wait for their memory"
            else:
                continue
            self.read(connection)
            connection.close_at_once(f"its peer has not read a byte for a second, {held} bytes wait for it, and {why}")
            connection.release()
        if self._total > UNREAD_BYTES or any(connection.leases for connection in self._held):
            self._check = self._loop.call_later(CHECK_S, self.close_those_that_do_not_read)

    def stop(self) -> None:
        if self._check is not None:
            self._check.cancel()

    def _hold(self, connection: Connection, size: int) -> None:
        self._total += size - self._held.get(connection, 0)
        self._held[connection] = size


_logger = logging.getLogger(__name__)

AUTHENTICATE_S = 30.0
"""How long a peer may take until it has authenticated by SASL, TLS included. Until then it holds its socket and what it
has sent of one small request. (Kafka: connections.max.idle.ms, 10 minutes after each byte.)"""


class Shared:
    """What the connections of a network share. admit: count a new connection, and say why there is no room for it, or
    None. gone: it has ended. queued_bytes: as MemoryPool. To be made inside the event loop."""

    def __init__(
        self,
        dispatch: Dispatch,
        admit: Callable[[Connection], str | None],
        gone: Callable[[Connection], None],
        queued_bytes: int,
        closed_lines: LogRate,
    ) -> None:
        self.dispatch, self.admit, self.gone, self.closed_lines = dispatch, admit, gone, closed_lines
        self.loop = loop = asyncio.get_running_loop()
        self.line, self.memory, self.watch = fair_queue(), MemoryPool(queued_bytes), LoopWatch()
        self.reads, self.unread = ReadTurns(loop), UnreadResponses(loop)
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.send_buffers: list[memoryview] = []  # as ResponseWriter


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection. `info` is what handlers see of it."""

    def __init__(self, shared: Shared, listener: str, max_request_bytes: int, gate: Gate | None = None) -> None:
        self.info = ConnectionInfo(listener=listener)
        self.turn_in_s = 0.0  # until requests are handled, or it is closed where it is refused; set by `admit`
        self.task: asyncio.Task[None] | None = None  # handles its requests; None when it was not admitted
        self._shared, self._loop, self._line = shared, shared.loop, shared.line
        self._max_request_bytes = max_request_bytes
        self._dispatch: Dispatch = shared.dispatch
        if gate is not None:
            self._dispatch = guard = gate(shared.dispatch, self.authenticated)
            max_request_bytes = min(max_request_bytes, guard.max_request_bytes)
        self.requests = RequestReader(shared.receive_buffer, max_request_bytes, shared.memory, shared.reads)
        self._writer = ResponseWriter(shared.loop, shared.send_buffers)
        self.info.mute = self._writer.mute
        self.leases: list[Lease] = []  # of memory that the answer to the request in work takes
        self.info.hold = self.leases.append
        self._transport: asyncio.Transport | None = None
        self._encrypts = False
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
            self._deadline = self._loop.call_later(AUTHENTICATE_S, self.close_at_once, why)
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
            self.close_at_once(str(error) or "no memory for the request")

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
        self.requests.max_bytes = self._max_request_bytes

    def secured(self, principal: str) -> None:
        """The handshake of TLS is done. Where SASL comes after it, that names the principal."""
        self._encrypts = True
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
        self._peer_has_ended()
        if self._waits:
            self.abort()

    def abort(self) -> None:
        """Close without waiting for anything."""
        if self.task is not None:
            self.task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def close_at_once(self, why: str, level: int = logging.WARNING) -> None:
        """As `abort`, with a line in the log."""
        if self._transport is None:
            return
        if not self._transport.is_closing():  # else for a peer that reads what is left of the answers, or does not
            self._shared.closed_lines.log(level, "connection %s closed: %s", self.info, why)
        self.requests.ended = True
        self.requests.drop()
        self._transport.abort()

    @property
    def unread_bytes(self) -> int:
        return self._writer.unread_bytes

    def release(self) -> None:
        """Release the leases: no more of the response is in memory than what the transport holds below its limit."""
        while self.leases:
            self.leases.pop().release()

    def close_idle(self, before: float) -> bool:
        """True if nothing has moved since `before`, in the loop's time: it is closed (connections.max.idle.ms)."""
        if self._busy and self._writer.can_write is None:
            return False
        self._writer.look_at_unsent()
        if max(self._last_read, self._writer.last_moved) >= before:
            return False
        self.close_at_once("nothing sent or read for connections.max.idle.ms", logging.INFO)
        return True

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
            self.release()
            self.requests.ended = True
            self.requests.drop()
            if self._transport is not None:
                self._writer.write_held()
                self._transport.close()

    async def _serve_requests(self) -> None:
        dispatch, line, watch = self._dispatch, self._line, self._shared.watch
        requests, writer = self.requests, self._writer
        frames, limited = requests.frames, self._shared.memory.limited
        now, slice_end = 0.0, 0.0  # 0: it has waited for something, so a slice begins
        while True:
            if not frames and not (requests.has_more and requests.make_frames()):
                if requests.ended and not requests.has_more:
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
                if (len(pieces) > 2 and any(isinstance(piece, FileSlice) for piece in pieces)) or (
                    self._encrypts and sum(map(len, pieces)) > BUFFER_BYTES  # 50 MB at once would hold the loop
                ):
                    await writer.stream(pieces)
                else:
                    writer.write(pieces, frames)
                del pieces
            if writer.can_write is not None:
                await writer.can_write
                slice_end = 0.0
            if self.leases:
                self.release()
            self._busy = False

    def _peer_has_ended(self) -> None:
        self._writer.unmute()
        if not self.info.closed:
            for callback in self.info.mark_closed():
                callback()
        self.requests.wake_up()

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _address(name: Any) -> tuple[str, int]:
    if not isinstance(name, tuple) or len(name) < 2:
        return "unknown", 0
    host = str(name[0])
    of_ipv4 = host.removeprefix("::ffff:")  # on a socket for both kinds of addresses; in Java it is 10.0.0.1 there too
    return host if ":" in of_ipv4 else of_ipv4, int(name[1])
