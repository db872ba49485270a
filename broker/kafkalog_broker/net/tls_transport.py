"""TLS of a connection, between the socket's transport and the connection: what asyncio and uvloop have too.

Theirs do whole handshakes as bytes come, so that 200 clients that come back together hold the loop three to four times
as long, and keep five times the memory for each connection (docs/figures.md). Here a handshake goes step by step in
turns, and what is decrypted goes straight into the connection's own buffer. Until its peer has sent something, a
connection holds a socket and no state of TLS; one that does not finish is closed after HANDSHAKE_S.

The peer may end its side and still be answered, as without TLS.
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


# TLS of one connection on bytes alone. OpenSSL on a socket asks the system twice for each record, for its head and for
# its body, and librdkafka makes a record of each message of a kilobyte: 370,000 calls for 250 MB. Here many records
# come with one call.

PIECE_BYTES = 32 << 10
"""Bytes that go into OpenSSL's memory at once, encrypted or to be encrypted. It is kept as long as the connection is,
so this bounds what a connection holds that once was busy: 40 kB for each direction."""

RECEIVED_BYTES = 128 << 10  # bytes that one read from a socket can bring

RECORDS_AT_ONCE = 512
"""Records may hold one byte each: so many are decrypted in one step, which takes a millisecond."""


class TlsRecords:
    """The broker's side of one connection. Errors are those of `ssl`."""

    __slots__ = ("_in", "_out", "_read", "_rest", "closed", "more", "tls")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._read = self.tls.read
        self._rest = memoryview(b"")  # not in OpenSSL's memory yet
        self.more = False  # True if what came may hold another whole record
        self.closed = False  # nothing more can be read: the peer has said so, or its bytes have ended

    def received(self, data: memoryview) -> None:
        """The peer has sent these bytes; `keep` them before they change."""
        self._feed_all()
        self._rest = data
        self.more = True

    def keep(self) -> None:
        """The bytes that were received last are about to change."""
        if self._rest:
            self._rest = memoryview(bytes(self._rest))

    def ended(self) -> None:
        """The peer sends nothing more."""
        self._feed_all()
        self._in.write_eof()
        self.more = True

    def _feed(self) -> bool:
        """Give OpenSSL the next piece of what came; False when there is none."""
        self._in.write(self._rest[:PIECE_BYTES])
        fed, self._rest = bool(self._rest), self._rest[PIECE_BYTES:]
        return fed

    def _feed_all(self) -> None:
        while self._rest:
            self._feed()

    def handshake(self) -> bytes | None:
        """The peer's certificate (DER), None without one. Raises ssl.SSLWantReadError where more has to come."""
        self._feed_all()
        self.tls.do_handshake()
        self.more = bool(self._in.pending)
        return self.tls.getpeercert(binary_form=True)

    def read(self, into: memoryview) -> int:
        """Decrypt what has come, as much as has room, at most RECORDS_AT_ONCE records; how many bytes there are now.
        `more`: call it again."""
        read, came, filled, size = self._read, self._in, 0, len(into)
        for _ in range(RECORDS_AT_ONCE):
            try:
                count: int = read(size - filled, into[filled:])  # type: ignore[arg-type, assignment]  # any buffer
            except ssl.SSLWantReadError:
                if self._feed():
                    continue
                break
            except ssl.SSLEOFError:  # without a goodbye, as many clients end
                count = 0
            if not count:
                self.closed = True
                break
            filled += count
            if filled == size:
                self.more = bool(self._rest or came.pending or self.tls.pending())
                return filled
            if not came.pending and not came.eof and not self._feed():
                break
        else:
            return filled
        self.more = False
        return filled

    def write(self, data: memoryview) -> None:
        """At most PIECE_BYTES."""
        self.tls.write(data)

    def goodbye(self) -> None:
        """Nothing more is written: the peer is to know that nothing is cut."""
        try:
            self.tls.unwrap()
        except (OSError, ValueError):
            pass  # it is written, and the peer's own is not waited for

    @property
    def unsent_bytes(self) -> int:
        """Bytes that `to_send` has not given out yet."""
        return self._out.pending

    def to_send(self) -> bytes:
        """Records for the peer, also alerts and what the handshake says."""
        return self._out.read()


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

WRITE_ONCE_BYTES = 512 << 10
"""Bytes that a connection encrypts in a round of the loop, so that a fast consumer does not keep it."""

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
        self._tls: TlsRecords | None = None
        self._open = False  # the handshake is done
        self._reads = True  # the connection takes what comes
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._full = self._waits = False  # the socket's transport takes no more for now; the connection was told
        self._closing = False

    # -- called by the connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes + self._socket.get_write_buffer_size()

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
        """Encrypt and send what the peer takes, keep the rest without a copy."""
        if self._closing or not data:
            return
        if not self._open:
            raise RuntimeError("nothing can be written before the handshake")
        self._unsent.append(memoryview(data).cast("B"))
        self._unsent_bytes += len(self._unsent[-1])
        if len(self._unsent) == 1:
            self._write_out()

    def close(self) -> None:
        """When what was written is with the operating system: with a goodbye, so that the peer knows nothing is cut."""
        if not self._closing:
            self._closing = True
            self._socket.pause_reading()
            self._write_out()

    def abort(self) -> None:
        self._forget_unsent()
        self._socket.abort()

    # -- called by the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the connection, which may refuse it, and wait for the peer's first bytes."""
        self._socket = cast(asyncio.Transport, transport)
        self._timer = self._loop.call_later(HANDSHAKE_S, self._too_late)
        self._protocol.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_unsent()
        self._timer.cancel()
        self._protocol.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._turns.received if self._open else self._turns.received[:PIECE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self._records.received(self._turns.received[:nbytes])
        self._go_on()
        self._records.keep()

    def eof_received(self) -> bool:
        """True: what was sent is still answered."""
        self._records.ended()
        self._go_on()
        return True

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._write_out()

    # -- the handshake

    @property
    def _records(self) -> TlsRecords:
        if self._tls is None:
            self._tls = TlsRecords(self._settings().context)
        return self._tls

    def _go_on(self) -> None:
        if self._open:
            self._read_on()
        elif not self._closing:  # nothing more comes before the step has been taken
            self._socket.pause_reading()
            self._turns.handshake(self._handshake_step)

    def _handshake_step(self) -> None:
        if self._closing:
            return
        try:
            principal = self._settings().principal(self._records.handshake())
        except ssl.SSLWantReadError:
            self._send(self._records)
            self._socket.resume_reading()
        except (OSError, ValueError, NotAuthenticated) as error:
            self._turns.failed += 1
            self._protocol.not_secured(reason(error))
            self._end()
        else:
            self._turns.done += 1
            self._open = True
            self._timer.cancel()
            self._send(self._records)
            self._protocol.secured(principal)
            self.resume_reading()

    def _too_late(self) -> None:
        if not self._closing:
            self._protocol.not_secured(f"its TLS handshake was not done in {HANDSHAKE_S:.0f} s")
        self.abort()

    # -- what was sent

    def _read_on(self) -> None:
        """Decrypt what has come, as far as the connection takes it; more is read when nothing is left."""
        tls = self._records
        while tls.more and self._reads and not self._closing:
            buffer = self._protocol.get_buffer(-1)
            try:
                count = tls.read(buffer)
            except OSError:
                self._end()
                return
            if count:
                self._protocol.buffer_updated(count)
            if tls.closed:
                self._socket.pause_reading()
                if not self._protocol.eof_received():
                    self.close()
            elif tls.more and count < len(buffer):  # others go before the records that are left
                self._socket.pause_reading()
                self._loop.call_soon(self._read_on)
                break
        if tls.unsent_bytes > MAX_ALERTS_BYTES:
            self.abort()
        elif not self._closing:
            self._send(tls)
            if self._reads and not (tls.more or tls.closed):
                self._socket.resume_reading()

    # -- what is to be sent

    def _write_out(self) -> None:
        """Send until the peer takes no more, or the connection has had its share of this round."""
        if self._socket.is_closing():
            return
        end = self._unsent_bytes - WRITE_ONCE_BYTES
        try:
            while self._unsent and not self._full and self._unsent_bytes > end:
                piece = self._unsent[0][:PIECE_BYTES]
                self._records.write(piece)
                self._send(self._records)
                self._unsent_bytes -= len(piece)
                rest = self._unsent.popleft()[len(piece) :]
                if rest:
                    self._unsent.appendleft(rest)
        except OSError:
            self._end()
            return
        if self._unsent and not self._full:
            self._loop.call_soon(self._write_out)
        waits = self._full or bool(self._unsent)
        if waits is not self._waits:
            self._waits = waits
            if waits:
                self._protocol.pause_writing()
            else:
                self._protocol.resume_writing()
        if self._closing and not self._unsent:
            self._end()

    def _send(self, tls: TlsRecords) -> None:
        if tls.unsent_bytes and not self._full:
            self._socket.write(tls.to_send())

    def _end(self) -> None:
        """With the alert that says why, or a goodbye."""
        self._forget_unsent()
        if self._tls is not None:
            if self._open:
                self._tls.goodbye()
            self._socket.write(self._tls.to_send())
        self._socket.close()

    def _forget_unsent(self) -> None:
        self._closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
