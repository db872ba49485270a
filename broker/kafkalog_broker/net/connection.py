"""One connection: reads request frames, and writes responses in the same order with bounded memory.

As in Kafka, one request of a connection is handled at a time. A connection that has used up its time slice of the event
loop queues for a turn (`FairQueue`), so pipelining gives it no more than its share. While the peer does not read its
responses, no further request is handled (`ResponseWriter`).

If the peer closes its side of the connection, requests that have arrived completely are still handled, because a
producer with acks=0 may send and close.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from time import perf_counter
from types import CoroutineType
from typing import Any, cast

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.net.connection_state import READING_STATES, TRANSITIONS, ConnectionState
from kafkalog_broker.net.dispatch import ConnectionClosed, Dispatch
from kafkalog_broker.net.loop_watch import MIN_HOLD_S
from kafkalog_broker.net.request_reader import RequestReader
from kafkalog_broker.net.response_stream import BUFFER_BYTES
from kafkalog_broker.net.response_writer import WRITE_BUFFER_BYTES, ResponseWriter
from kafkalog_broker.net.sasl_gate import NewSaslGate
from kafkalog_broker.net.shared_resources import SharedResources
from kafkalog_broker.net.socket_address import host_and_port
from kafkalog_broker.protocol.connection_info import ConnectionInfo, MemoryLease
from kafkalog_broker.runtime.state_machine import next_state
from kafkalog_broker.runtime.step_timing import NOT_BEGUN, timed
from kafkalog_broker.storage.partition.file_handles import FileSlice

AUTHENTICATION_TIMEOUT_S = 30.0
"""Time limit for SASL authentication including the TLS handshake. Until then a peer holds a socket and the memory of
one small request. Kafka only applies connections.max.idle.ms, which by default closes a connection 10 minutes after its
last byte."""

_logger = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    """Protocol object of one connection.

    Attributes:
        info: The connection as handlers see it.
        state: See connection_state.py.
        task: Task that handles the requests. None for a refused connection, and while max.connection.creation.rate
            delays the first request.
        leases: Memory budgets that the current response holds.
    """

    def __init__(
        self,
        shared: SharedResources,
        listener: str,
        max_request_bytes: int,
        new_gate: NewSaslGate | None = None,
        *,
        is_encrypted: bool = False,
    ) -> None:
        """
        Args:
            shared: Resources of all connections.
            listener: Name of the listener that accepted the connection.
            max_request_bytes: Largest request of an authenticated peer.
            new_gate: Makes the SASL gate, if the listener requires SASL.
            is_encrypted: True if the transport is a TlsTransport, which reports the end of its handshake.
        """
        self.info = ConnectionInfo(listener=listener)
        self.state = ConnectionState.ACCEPTED
        self.task: asyncio.Task[None] | None = None
        self.leases: list[MemoryLease] = []
        self._shared = shared
        self._loop = shared.loop
        self._fair_queue = shared.fair_queue
        self._max_request_bytes = max_request_bytes
        self._is_encrypted = is_encrypted
        self._requires_sasl = new_gate is not None
        self._dispatch: Dispatch = shared.dispatch
        if new_gate is not None:
            self._dispatch = gate = new_gate(shared.dispatch, self.authenticated)
            max_request_bytes = min(max_request_bytes, gate.max_request_bytes)
        self._requests = RequestReader(shared.receive_buffer, max_request_bytes, shared.memory, shared.read_turns)
        self._writer = ResponseWriter(shared.loop, shared.send_buffers)
        self.info.mute = self._writer.mute
        self.info.hold = self.leases.append
        self._transport: asyncio.Transport | None = None  # until connection_made, and after connection_lost
        self._is_handling = False  # a request is being handled, or its response written
        self._last_read = self._loop.time()
        self._delayed_start: asyncio.TimerHandle | None = None  # while max.connection.creation.rate delays requests
        self._authentication_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transport is no subclass of it
        self._transport = self._requests.transport = self._writer.transport = transport
        self.info.host, self.info.port = host_and_port(transport.get_extra_info("peername"))
        self.info.local_host, self.info.local_port = host_and_port(transport.get_extra_info("sockname"))
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        admission = self._shared.quotas.admit(self)
        if admission.refusal is not None:
            self._refuse(transport, admission.delay_s)
            return
        if self._requires_sasl:
            reason = f"it has not authenticated in {AUTHENTICATION_TIMEOUT_S:.0f} s"
            self._authentication_deadline = self._loop.call_later(AUTHENTICATION_TIMEOUT_S, self.abort_with, reason)
        if self._is_encrypted:
            self._enter(ConnectionState.HANDSHAKING)
        else:
            self._enter(ConnectionState.AUTHENTICATING if self._requires_sasl else ConnectionState.SERVING)
        if admission.delay_s:
            self._delayed_start = self._loop.call_later(admission.delay_s, self._start_handling)
        else:
            self._start_handling()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._requests.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._fair_queue.begin_iteration()
        self._last_read = self._loop.time()
        try:
            self._requests.accept_bytes(nbytes, self._is_handling)
        except (MalformedRequest, MemoryError) as error:
            self.abort_with(str(error) or "no memory for the request")

    def eof_received(self) -> bool:
        """Drain the connection, because the peer has closed its side.

        Returns:
            True to keep the transport open until the received requests are handled; False for a refused connection,
            whose transport then closes itself.
        """
        if self.state is ConnectionState.REFUSED:
            return False
        self._drain()
        self._notify_end()
        return True

    def pause_writing(self) -> None:
        self._writer.pause()
        self._shared.unread.add(self)

    def resume_writing(self) -> None:
        self._shared.unread.discard(self)
        self._writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._requests.end()
        self._enter(ConnectionState.CLOSED)
        self._cancel_authentication_deadline()
        self._transport = self._requests.transport = self._writer.transport = None
        self._dispatch = self._shared.dispatch  # breaks the reference cycle with the gate
        self._shared.quotas.release(self)
        self._notify_end()
        self.resume_writing()
        if self._delayed_start is not None:
            self._delayed_start.cancel()
            self._requests.drop()
        if _logger.isEnabledFor(logging.DEBUG):
            _logger.debug("connection %s ended%s", self.info, f": {exc}" if exc else "")

    def handshake_done(self, principal: str) -> None:
        """Continue after the TLS handshake. A listener with SASL ignores `principal`, which the certificate names."""
        if not self._requires_sasl:
            self.authenticated(principal)
        elif self.state is ConnectionState.HANDSHAKING:
            self._enter(ConnectionState.AUTHENTICATING)

    def handshake_failed(self, reason: str) -> None:
        """Log why the TLS handshake failed. The transport closes itself."""
        self._shared.close_log.log(logging.WARNING, "connection %s closed: %s", self.info, reason)

    def authenticated(self, principal: str) -> None:
        """Set the principal of the peer: that of its certificate or SASL exchange, or ANONYMOUS.

        A SASL re-authentication calls it again.
        """
        self.info.principal = principal
        self._cancel_authentication_deadline()
        self._requests.max_bytes = self._max_request_bytes
        if self.state in (ConnectionState.HANDSHAKING, ConnectionState.AUTHENTICATING):
            self._enter(ConnectionState.SERVING)

    def stop(self) -> None:
        """Finish the current request, discard waiting ones, then close."""
        self._drain()
        self._requests.drop()
        self._notify_end()
        if self._delayed_start is not None:
            self.abort()

    def abort(self) -> None:
        """Close immediately, without finishing the current request."""
        if self.task is not None:
            self.task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def abort_with(self, reason: str, level: int = logging.WARNING) -> None:
        """Close immediately, discard waiting requests, and log why. The current request runs to its end."""
        if self._transport is None:
            return
        if not self._transport.is_closing():  # a closing transport has been logged, and only sends remaining bytes
            self._shared.close_log.log(level, "connection %s closed: %s", self.info, reason)
        self._drain()
        self._requests.drop()
        self._transport.abort()

    @property
    def unread_bytes(self) -> int:
        """Bytes of responses in memory that the peer has not read."""
        return self._writer.unread_bytes

    def release_leases(self) -> None:
        """Release the memory budgets that the current response holds.

        Called when the response has been written, or is discarded. Bytes that the peer has not read may still be in the
        transport's write buffer, which is bounded.
        """
        while self.leases:
            self.leases.pop().release()

    def close_if_idle(self, before: float) -> bool:
        """Close the connection if it has been idle for longer than connections.max.idle.ms.

        Args:
            before: Time of the event loop. A connection without reads and writes since then is idle.

        Returns:
            True if it was closed.
        """
        if self._is_handling and self._writer.writable is None:
            return False
        self._writer.note_progress()
        if max(self._last_read, self._writer.last_progress) >= before:
            return False
        self.abort_with("nothing sent or read for connections.max.idle.ms", logging.INFO)
        return True

    def _start_handling(self) -> None:
        self._delayed_start = None
        self.task = self._loop.create_task(self._serve(), name=f"connection {self.info}")
        self.task.add_done_callback(lambda _: self._requests.drop())

    async def _serve(self) -> None:
        try:
            await self._serve_requests()
        except ConnectionClosed as closed:
            self._shared.close_log.log(closed.level, "connection %s closed: %s", self.info, closed)
            if closed.last_response is not None:
                self._writer.write(closed.last_response, ())
        except MalformedRequest as error:
            self._shared.close_log.log(logging.WARNING, "connection %s closed: %s", self.info, error)
        except Exception as error:  # a defect must be logged, and must not affect other connections
            _logger.exception("connection %s closed: %s: %s", self.info, type(error).__name__, error)
        finally:
            self._is_handling = False  # a peer that does not read the last response is idle
            self.release_leases()
            self._drain()
            self._requests.drop()
            if self._transport is not None:
                self._writer.write_held()
                self._transport.close()

    async def _serve_requests(self) -> None:
        """Handle requests in order until the connection ends.

        The task handles requests in a row, without being suspended, until the end of its slice of the event loop. Then
        it queues for a turn, a longer slice (`wait_turn`).

        A suspension for another reason (no request, a handler that awaits something, a peer that does not read) ends
        the slice early. The next request then begins a new slice: `slice_now` grants it without waiting, or
        `wait_slice` after the slices of other connections.

        This loop runs once for each request, so its steps are not functions of their own.
        """
        dispatch = self._dispatch
        queue = self._fair_queue
        loop_watch = self._shared.loop_watch
        requests, writer = self._requests, self._writer
        frames = requests.frames
        counts_memory = self._shared.memory.is_limited
        now = 0.0  # perf_counter when the last slice began or the last request had its first step
        slice_end: float | None = None  # None: the next request begins a new slice
        while True:
            # Wait for a request.
            if not frames and not (requests.has_more and requests.make_frames()):
                if requests.ended and not requests.has_more:
                    return
                if writer.held:
                    writer.write_held()
                await requests.wait_more()
                slice_end = None
                continue

            # Begin a slice or a turn, unless the present one has time left. `stop` may drop the requests meanwhile.
            if slice_end is None:
                now = perf_counter()
                slice_end = queue.slice_now(now)
                if slice_end is None:
                    writer.write_held()
                    slice_end = await queue.wait_slice()
                    now = perf_counter()
                    if not frames:
                        continue
            elif now >= slice_end:
                writer.write_held()
                slice_end = await queue.wait_turn()
                now = perf_counter()
                if not frames:
                    continue

            # Handle the request. The first step of a coroutine runs here, without `await`. Most handlers have no other,
            # and then the slice goes on.
            frame = requests.next_frame()
            self._is_handling = True
            began = now
            awaited: Any = NOT_BEGUN  # what the coroutine awaits after its first step, if it has not ended
            result_or_coroutine: Any = dispatch(frame, self.info)
            if type(result_or_coroutine) is CoroutineType:
                try:
                    awaited = result_or_coroutine.send(None)
                except StopIteration as done:
                    pieces = done.value
            else:
                pieces = result_or_coroutine
            now = perf_counter()
            if awaited is not NOT_BEGUN or now - began > MIN_HOLD_S:
                api_key = bytes(frame[:2])  # a view would keep the frame in memory
                loop_watch.note(api_key, now - began)
            del frame  # its records need not stay in memory until the response is sent
            if awaited is not NOT_BEGUN:
                writer.write_held()
                pieces = await timed(result_or_coroutine, partial(loop_watch.note, api_key), awaited)
                slice_end = None
            del result_or_coroutine  # a reference to it would keep the response in memory
            if counts_memory:
                requests.release_frame()

            # Write the response. Each path above has assigned `pieces`; None if the request has no response.
            if pieces is not None and self._transport is not None:
                # `encode_response` puts bytes before and after each FileSlice, so a response with one has three pieces.
                has_file_slices = len(pieces) > 2 and any(isinstance(piece, FileSlice) for piece in pieces)
                # Encrypting 50 MB in one step would hold the event loop.
                takes_long = self._is_encrypted and sum(map(len, pieces)) > BUFFER_BYTES
                if has_file_slices or takes_long:
                    await writer.stream(pieces)
                else:
                    writer.write(pieces, frames)
                del pieces  # else the response would stay in memory while the task waits
            if writer.writable is not None:
                await writer.writable
                slice_end = None
            if self.leases:
                self.release_leases()
            self._is_handling = False

    def _enter(self, state: ConnectionState) -> None:
        self.state = next_state(TRANSITIONS, self.state, state)

    def _refuse(self, transport: asyncio.Transport, delay_s: float) -> None:
        self._enter(ConnectionState.REFUSED)
        self._requests.end()
        if delay_s:
            transport.pause_reading()
            self._loop.call_later(delay_s, self.abort)
        else:
            transport.abort()

    def _drain(self) -> None:
        """Accept no further bytes. Idempotent."""
        self._requests.end()
        if self.state in READING_STATES:
            self._enter(ConnectionState.DRAINING)

    def _notify_end(self) -> None:
        """Tell handlers and waiters that the peer or the broker has ended the connection. Idempotent."""
        self._writer.unmute()
        if not self.info.is_closed:
            for callback in self.info.mark_closed():
                callback()
        self._requests.wake_up()

    def _cancel_authentication_deadline(self) -> None:
        if self._authentication_deadline is not None:
            self._authentication_deadline.cancel()
            self._authentication_deadline = None
