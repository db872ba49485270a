"""TLS of a connection, between the socket's transport and the connection: what asyncio and uvloop have too.

Theirs do not say why they refuse a peer (a Java client tries again for ever), forget requests that have arrived when
the peer ends, do not count all that waits to be sent, do handshakes as they come, and keep twice the memory
(docs/figures.md). Here handshakes go step by step in turns, and what is decrypted goes straight into the connection's
own buffer. Until its peer has sent something, a connection holds a socket and no state of TLS; one that does not finish
is closed after HANDSHAKE_S. The peer may end its side and still be answered, as without TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from kafkalog_broker.net.connection import Connection
from kafkalog_broker.net.loop_watch import LoopWatch
from kafkalog_broker.security.sasl import NotAuthenticated

if TYPE_CHECKING:
    from kafkalog_broker.security.tls_context import ListenerTls


def reason(error: Exception) -> str:
    """Why a handshake failed, in one line for the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        text = (error.reason or str(error)).lower().replace("_", " ")
        plain = error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE", "BAD_RECORD_TYPE")
        hint = ": it may speak without TLS (security.protocol)" if plain else ""
        return f"its TLS handshake failed: {text}{hint}"
    if isinstance(error, NotAuthenticated):
        return str(error)
    return f"its TLS handshake failed: {error}"


PIECE_BYTES = 32 << 10
"""Bytes that are encrypted at once, and received at once before the handshake is done. OpenSSL keeps the memory of the
largest."""

RECEIVED_BYTES = 64 << 10
"""Bytes that one read from a socket can bring, many records in one call: OpenSSL on a socket asks the system twice for
each record, and librdkafka makes one of each message of a kilobyte. As long as the connection is, it keeps as much."""

RECORDS_AT_ONCE = 512
"""Records may hold one byte each: so many are decrypted in one step, which takes a millisecond."""

HANDSHAKES_S = 0.002
"""Time for steps of handshakes in one round of the event loop; one step is always taken. A step is a millisecond of
arithmetic with an RSA key of 2,048 bits: of 200 clients that come back together, each takes one when it is its turn,
and requests of others are served between two rounds."""


class TlsTurns:
    """For one event loop. watch: told how long handshakes held it. clock: seconds. done, failed: handshakes so far."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, watch: LoopWatch, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._loop, self._watch, self._clock = loop, watch, clock
        self.done = self.failed = 0
        self.received = memoryview(bytearray(RECEIVED_BYTES))
        """Where encrypted bytes are received, one connection after the other."""
        self._waiting: deque[Callable[[], None]] = deque()

    def handshake(self, step: Callable[[], None]) -> None:
        """Call `step` in a later round, after those that came before it."""
        self._waiting.append(step)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next_round)

    def _next_round(self) -> None:
        began = now = self._clock()
        while self._waiting and now < began + HANDSHAKES_S:
            self._waiting.popleft()()
            now = self._clock()
        self._watch.note_named("TLS handshakes", now - began)
        if self._waiting:
            self._loop.call_soon(self._next_round)


HANDSHAKE_S = 30.0
"""A handshake takes three messages; a client that is cut off in the middle holds a socket no longer than this. Kafka
waits for connections.max.idle.ms."""

MAX_ALERTS_BYTES = 64 << 10
"""Bytes that may wait for a peer that asks for new keys again and again and does not read the answers."""


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """Protocol of a socket's transport, and transport of a connection, which hears of the peer before the handshake."""

    _socket: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: Connection, turns: TlsTurns, tls: Callable[[], ListenerTls]
    ) -> None:
        """tls: asked when the handshake begins, so that it goes by what holds then."""
        super().__init__()
        self._loop, self._protocol, self._turns, self._settings = loop, protocol, turns, tls
        self._came, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None  # from the peer's first bytes on
        self._open = False  # the handshake is done
        self._reads = True  # the connection takes what comes
        self._full = False  # the socket's transport takes no more for now
        self._more = self._ended = False  # what came may hold another whole record, or its end; that has been read
        self._closing = False

    # -- called by the connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reads = False
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._reads = True
        if self._open:
            self._loop.call_soon(self._read_on)

    def write(self, data: Any) -> None:
        if self._closing:
            return
        assert self._tls is not None  # a connection answers what came through it
        rest, pieces = memoryview(data).cast("B"), []
        try:
            while rest:
                self._tls.write(rest[:PIECE_BYTES])
                pieces.append(self._to_send.read())
                rest = rest[PIECE_BYTES:]
        except OSError:
            self.close()
        else:  # at once, so that whoever is told that it waits finds all of it
            self._socket.write(b"".join(pieces))

    def close(self) -> None:
        """When what was written is with the operating system: with a goodbye, so that the peer knows nothing is cut, or
        the alert that says why."""
        if self._closing:
            return
        self._closing = True
        if self._open and self._tls is not None:
            try:
                self._tls.unwrap()
            except (OSError, ValueError):
                pass  # it is written, and the peer's own is not waited for
        self._send()
        self._socket.close()

    def abort(self) -> None:
        self._closing = True
        self._socket.abort()

    # -- called by the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the connection, which may refuse it, and wait for the peer's first bytes."""
        self._socket = cast(asyncio.Transport, transport)
        self._timer = self._loop.call_later(HANDSHAKE_S, self._too_late)
        self._protocol.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._timer.cancel()
        self._protocol.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._turns.received if self._open else self._turns.received[:PIECE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self._came.write(self._turns.received[:nbytes])
        self._go_on()

    def eof_received(self) -> bool:
        """True: what was sent is still answered."""
        self._came.write_eof()
        self._go_on()
        return True

    def pause_writing(self) -> None:
        self._full = True
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._full = False
        self._protocol.resume_writing()

    def _send(self) -> None:
        self._socket.write(self._to_send.read())

    # -- the handshake

    def _go_on(self) -> None:
        self._more = True
        if self._open:
            self._read_on()
        elif not self._closing:  # nothing more comes before the step has been taken
            self._socket.pause_reading()
            self._turns.handshake(self._handshake_step)

    def _handshake_step(self) -> None:
        if self._closing:
            return
        settings = self._settings()
        if self._tls is None:
            self._tls = settings.context.wrap_bio(self._came, self._to_send, server_side=True)
        try:
            self._tls.do_handshake()
            principal = settings.principal(self._tls.getpeercert(binary_form=True))
        except ssl.SSLWantReadError:
            self._send()
            self._socket.resume_reading()
        except (OSError, ValueError, NotAuthenticated) as error:
            self._turns.failed += 1
            self._protocol.not_secured(reason(error))
            self.close()
        else:
            self._turns.done += 1
            self._open = True
            self._timer.cancel()
            self._send()
            self._protocol.secured(principal)
            self.resume_reading()

    def _too_late(self) -> None:
        if not self._closing:
            self._protocol.not_secured(f"its TLS handshake was not done in {HANDSHAKE_S:.0f} s")
        self.abort()

    # -- what was sent

    def _read_on(self) -> None:
        """Decrypt what has come, as far as the connection takes it; more is read when nothing is left."""
        while self._more and self._reads and not self._closing:
            buffer = self._protocol.get_buffer(-1)
            try:
                count = self._decrypt(buffer)
            except OSError:
                self.close()
                return
            if count:
                self._protocol.buffer_updated(count)
            if self._ended:
                self._socket.pause_reading()
                if not self._protocol.eof_received():
                    self.close()
            elif self._more and count < len(buffer):  # others go before the records that are left
                self._socket.pause_reading()
                self._loop.call_soon(self._read_on)
                break
        if self._to_send.pending > MAX_ALERTS_BYTES:
            self.abort()
        elif not self._closing:
            if self._to_send.pending and not self._full:
                self._send()
            if self._reads and not (self._more or self._ended):
                self._socket.resume_reading()

    def _decrypt(self, into: memoryview) -> int:
        """Fill `into` as far as at most RECORDS_AT_ONCE records do; how many bytes."""
        assert self._tls is not None
        read, came, filled, size = self._tls.read, self._came, 0, len(into)
        for _ in range(RECORDS_AT_ONCE):
            try:
                count: int = read(size - filled, into[filled:])  # type: ignore[arg-type, assignment]  # any buffer
            except ssl.SSLWantReadError:
                break
            except ssl.SSLEOFError:  # without a goodbye, as many clients end
                count = 0
            if not count:
                self._ended = True
                break
            filled += count
            if filled == size:
                self._more = bool(came.pending or came.eof or self._tls.pending())
                return filled
            if not came.pending and not came.eof:
                break
        else:
            return filled
        self._more = False
        return filled
