"""A connection's transport with TLS, on a socket of Python's: what asyncio's and uvloop's have, with bounded steps.

Theirs do whole handshakes whenever bytes come, and uvloop's keeps 256 kB for each connection. Here a handshake goes
step by step in turns (`tls_turns`), and what is decrypted goes straight into the protocol's own buffer. Until its peer
has sent something, a connection holds a socket and no state of TLS (`tls_records`); one that does not finish is closed
after HANDSHAKE_S.

The peer may end its side and still be answered, as without TLS.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kafkalog_broker.net.connection import Connection
from kafkalog_broker.net.loop_watch import NOTED_S, LoopWatch
from kafkalog_broker.security.sasl import NotAuthenticated

if TYPE_CHECKING:
    from kafkalog_broker.security.tls_context import ListenerTls


def name_of(ask: Callable[[], Any]) -> Any:
    """None for a peer that has gone already."""
    try:
        return ask()
    except OSError:
        return None


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


# TLS of one connection on bytes alone: records that came go in, records to be sent come out. No socket, no clock.
#
# OpenSSL on a socket asks the system twice for each record, for its head and for its body, and librdkafka makes a
# record of each message of a kilobyte: 370,000 calls for 250 MB. Here many records come with one call.

PIECE_BYTES = 32 << 10
"""Bytes that go into OpenSSL's memory at once, encrypted or to be encrypted. It is kept as long as the connection is,
so this bounds what a connection holds that once was busy: 40 kB for each direction."""

RECORDS_AT_ONCE = 1024
"""Records may hold one byte each: so many are decrypted in one step, which takes 2 ms."""


class TlsRecords:
    """The broker's side of one connection. Errors are those of `ssl`."""

    __slots__ = ("_in", "_out", "_read", "closed", "more", "tls")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._read = self.tls.read
        self.more = False
        """True if what came may hold another whole record."""
        self.closed = False
        """Nothing more can be read: the peer has said so, or its bytes have ended."""

    def received(self, data: memoryview) -> None:
        """The peer has sent these bytes, at most PIECE_BYTES of them."""
        self._in.write(data)
        self.more = True

    def ended(self) -> None:
        """The peer sends nothing more."""
        self._in.write_eof()
        self.more = True

    def handshake(self) -> bytes | None:
        """Go on with what has come. Raises ssl.SSLWantReadError where more has to come; else the peer's certificate
        (DER), None without one."""
        self.tls.do_handshake()
        self.more = bool(self._in.pending)
        return self.tls.getpeercert(binary_form=True)

    def read(self, into: memoryview) -> int:
        """Decrypt what has come, as much as has room, at most RECORDS_AT_ONCE records; how many bytes there are now.
        `more`: call it again."""
        read, came, filled, size = self._read, self._in, 0, len(into)
        try:
            for _ in range(RECORDS_AT_ONCE):
                count: int = read(size - filled, into[filled:])  # type: ignore[arg-type, assignment]  # any buffer
                if not count:
                    self.closed = True
                    break
                filled += count
                if filled == size:
                    self.more = bool(came.pending or self.tls.pending())
                    return filled
                if not came.pending and not came.eof:
                    break
            else:
                return filled
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLEOFError:  # without a goodbye, as many clients end
            self.closed = True
        self.more = False
        return filled

    def write(self, data: memoryview) -> None:
        """Encrypt at most PIECE_BYTES."""
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


# What TLS may take of one round of the event loop, over all connections.
#
# A handshake is a millisecond of arithmetic with an RSA key of 2,048 bits: of 200 clients that come back together,
# each takes a step when it is its turn, and requests of others are served between two rounds. What is written is
# bounded likewise, since encryption of what many consumers read at once is work too.

HANDSHAKES_S = 0.002
"""Time for steps of handshakes in one round; one step is always taken."""

WRITTEN_BYTES = 4 << 20
"""Bytes that all connections encrypt in one round: 2 to 4 ms."""


class TlsTurns:
    """For one event loop, in its thread. clock: seconds. watch: where it is noted how long handshakes held the loop.
    done, failed: handshakes so far."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = perf_counter,
        watch: LoopWatch | None = None,
    ) -> None:
        self._loop, self._clock, self._watch = loop, clock, watch
        self.done = self.failed = 0
        self.received = memoryview(bytearray(PIECE_BYTES))
        """Where encrypted bytes are received, one connection after the other."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._left_bytes = WRITTEN_BYTES
        self._moving = False  # `_next_round` is called in the loop's next round

    def handshake(self, step: Callable[[], None]) -> None:
        """Call `step` in a later round, after those that came before it."""
        self._waiting.append(step)
        self._move()

    def written(self, count: int) -> bool:
        """So many bytes are about to be encrypted; False when that has to wait for another round."""
        if self._left_bytes <= 0:
            return False
        self._left_bytes -= count
        self._move()
        return True

    def held(self, what: str, seconds: float) -> None:
        """TLS has held the loop for so long."""
        if seconds > NOTED_S and self._watch is not None:
            self._watch.note_named(what, seconds)

    def _move(self) -> None:
        if not self._moving:
            self._moving = True
            self._loop.call_soon(self._next_round)

    def _next_round(self) -> None:
        self._moving = False
        self._left_bytes = WRITTEN_BYTES
        if not self._waiting:
            return
        began = self._clock()
        now, end = began, began + HANDSHAKES_S
        while self._waiting and now < end:
            self._waiting.popleft()()
            now = self._clock()
        self.held("TLS handshakes", now - began)
        if self._waiting:
            self._move()


HANDSHAKE_S = 30.0
"""A handshake takes three messages; a client that is cut off in the middle holds a socket no longer than this. Kafka
waits for connections.max.idle.ms."""

WRITE_ONCE_BYTES = 512 << 10
"""Bytes that a connection writes in a round of the loop, so that a fast consumer does not keep it."""

JOIN_BYTES = 64 << 10
"""Pieces up to so many bytes are written as one: each would be a record, and a call, of its own."""

MAX_ALERTS_BYTES = 64 << 10
"""Bytes that may wait for a peer that asks for new keys again and again and does not read the answers."""


class TlsTransport(asyncio.Transport):
    """For an accepted socket. `start` tells the protocol that it is connected; the handshake comes after that."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        peer: socket.socket,
        protocol: Connection,
        turns: TlsTurns,
        tls: Callable[[], ListenerTls],
    ) -> None:
        """tls: asked when the handshake begins, so that it goes by what holds then."""
        super().__init__({"peername": name_of(peer.getpeername), "sockname": name_of(peer.getsockname)})
        self._loop, self._socket, self._protocol, self._turns, self._settings = loop, peer, protocol, turns, tls
        self._fd = peer.fileno()
        self._tls: TlsRecords | None = None
        self._open = False  # the handshake is done
        self._reads, self._reads_wanted = False, True
        self._writes = False
        self._sealed = memoryview(b"")  # encrypted, and not taken by the peer yet
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = self._round_bytes = 0
        self._high = self._low = 64 << 10
        self._writing_paused = False
        self._closing = self._lost = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Tell the protocol, which may refuse the connection, and wait for the peer's first bytes."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._protocol.connection_made(self)
        if not self._closing:
            self._timer = self._loop.call_later(HANDSHAKE_S, self._too_late)
            self._wait_for(reading=True)

    # -- what asyncio's transports have

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes + len(self._sealed)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 << 10 if high is None else high
        self._low = self._high // 4 if low is None else low

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reads_wanted = False
        if self._open:
            self._stop_reading()

    def resume_reading(self) -> None:
        self._reads_wanted = True
        if self._open and not self._closing:
            self._read_on()

    def write(self, data: Any) -> None:
        """Encrypt and send what the peer takes at once, keep the rest without a copy."""
        if self._closing or not data:
            return
        if self._tls is None or not self._open:
            raise RuntimeError("nothing can be written before the handshake")
        self._unsent.append(memoryview(data).cast("B"))
        self._unsent_bytes += len(self._unsent[-1])
        if not self._writes:
            self._write_out()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        small: list[Any] = []
        size = 0
        for piece in list_of_data:
            if size + len(piece) > JOIN_BYTES and small:
                self.write(b"".join(small))
                small, size = [], 0
            if len(piece) > JOIN_BYTES:
                self.write(piece)
            else:
                small.append(piece)
                size += len(piece)
        if small:
            self.write(small[0] if len(small) == 1 else b"".join(small))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """When what was written is with the operating system: with a goodbye, so that the peer knows nothing is cut."""
        if self._closing:
            return
        self._closing = True
        self._stop_reading()
        if not self._unsent and not self._sealed:
            self._end(None, goodbye=True)

    def abort(self) -> None:
        self._closing = True
        self._end(None, goodbye=False)

    # -- the handshake

    def _wait_for(self, *, reading: bool) -> None:
        if reading:
            self._reads = True
            self._loop.add_reader(self._fd, self._handshake_ready)
        else:
            self._writes = True
            self._loop.add_writer(self._fd, self._handshake_ready)

    def _handshake_ready(self) -> None:
        """The socket can be read or written again, and is not looked at before the step has been taken."""
        self._stop_reading()
        self._stop_writing()
        self._turns.handshake(self._handshake_step)

    def _handshake_step(self) -> None:
        if self._closing:
            return
        try:
            settings = self._settings()
            if self._tls is None:
                self._tls = TlsRecords(settings.context)
            self._receive(self._tls)
            principal = settings.principal(self._tls.handshake())
            self._flush(self._tls)
        except ssl.SSLWantReadError:
            self._handshake_goes_on()
        except (OSError, ValueError, NotAuthenticated) as error:
            self._fail(error)
        else:
            self._handshake_done(principal)

    def _handshake_goes_on(self) -> None:
        assert self._tls is not None
        try:
            self._wait_for(reading=self._flush(self._tls))
        except OSError as error:
            self._fail(error)

    def _handshake_done(self, principal: str) -> None:
        assert self._tls is not None
        self._turns.done += 1
        self._open = True
        if self._timer is not None:
            self._timer.cancel()
        self._extra["ssl_object"] = self._tls.tls  # type: ignore[attr-defined]
        self._protocol.secured(principal)
        if self._sealed and not self._lost:
            self._wait_to_write()
        if self._reads_wanted and not self._closing:
            self._read_on()

    def _fail(self, error: Exception) -> None:
        self._turns.failed += 1
        self._protocol.not_secured(reason(error))
        if self._tls is not None:
            self._try_to_send(self._tls)
        self.abort()

    def _too_late(self) -> None:
        if not self._open:
            self._protocol.not_secured(f"its TLS handshake was not done in {HANDSHAKE_S:.0f} s")
            self.abort()

    # -- reading

    def _read_on(self) -> None:
        if not self._reads:
            self._reads = True
            self._loop.add_reader(self._fd, self._read_ready)
        self._read_pending()

    def _read_pending(self) -> None:
        """Read what OpenSSL holds already: it makes no socket readable."""
        if self._tls is not None and self._reads and self._tls.more:
            self._loop.call_soon(self._read_ready)

    def _stop_reading(self) -> None:
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._fd)

    def _read_ready(self) -> None:
        if not self._reads or self._tls is None:
            return
        tls, buffer, began = self._tls, self._protocol.get_buffer(-1), perf_counter()
        size, filled, more = len(buffer), 0, True
        try:
            if tls.more:
                filled = tls.read(buffer)
            while more and filled < size and not tls.more and not tls.closed:
                more = self._receive(tls)
                if tls.more:
                    filled += tls.read(buffer[filled:])
            if tls.unsent_bytes:
                self._answer(tls)
        except (OSError, ValueError) as error:
            self._try_to_send(tls)
            self._end(error, goodbye=False)
            return
        self._turns.held("TLS reading", perf_counter() - began)
        if filled:
            self._protocol.buffer_updated(filled)
        if tls.closed and not self._closing:
            self._stop_reading()
            self._reads_wanted = False
            if not self._protocol.eof_received():
                self.close()
        else:
            self._read_pending()

    def _receive(self, tls: TlsRecords) -> bool:
        """Take what the socket has, up to PIECE_BYTES; whether there may be more of it."""
        buffer = self._turns.received
        try:
            count = self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return False
        if count:
            tls.received(buffer[:count])
        else:
            tls.ended()
        return count == len(buffer)

    def _answer(self, tls: TlsRecords) -> None:
        if tls.unsent_bytes > MAX_ALERTS_BYTES:
            raise ConnectionAbortedError(f"its peer does not read {tls.unsent_bytes} bytes of TLS's own messages")
        if not self._writes and not self._flush(tls):
            self._wait_to_write()

    # -- writing

    def _write_out(self) -> None:
        """Send until the peer takes no more, or the connection has had its share of this round."""
        tls, unsent = self._tls, self._unsent
        assert tls is not None
        try:
            while self._flush(tls) and unsent:
                chunk = unsent[0][:PIECE_BYTES]
                count = len(chunk)
                if not self._may_write(count):
                    break
                tls.write(chunk)
                self._unsent_bytes -= count
                if count == len(unsent[0]):
                    unsent.popleft()
                else:
                    unsent[0] = unsent[0][count:]
        except (OSError, ValueError) as error:
            self._end(error, goodbye=False)
            return
        if unsent or self._sealed:
            self._wait_to_write()
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _flush(self, tls: TlsRecords) -> bool:
        """Send what is encrypted; whether the peer has taken all of it."""
        while self._sealed or tls.unsent_bytes:
            if not self._sealed:
                self._sealed = memoryview(tls.to_send())
            try:
                count = self._socket.send(self._sealed)
            except (BlockingIOError, InterruptedError):
                return False
            self._sealed = self._sealed[count:]
        return True

    def _wait_to_write(self) -> None:
        if not self._writes:
            self._writes = True
            self._loop.add_writer(self._fd, self._write_ready)

    def _may_write(self, count: int) -> bool:
        if self._round_bytes >= WRITE_ONCE_BYTES or not self._turns.written(count):
            return False
        if not self._round_bytes:
            self._loop.call_soon(self._new_round)
        self._round_bytes += count
        return True

    def _new_round(self) -> None:
        self._round_bytes = 0

    def _write_ready(self) -> None:
        if self._tls is None or self._lost:
            return
        self._write_out()
        if self._lost:
            return
        left = self.get_write_buffer_size()
        if not left:
            self._stop_writing()
        if self._writing_paused and left <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()
        if self._closing and not left:
            self._end(None, goodbye=True)

    def _stop_writing(self) -> None:
        if self._writes:
            self._writes = False
            self._loop.remove_writer(self._fd)

    # -- the end

    def _end(self, error: Exception | None, *, goodbye: bool) -> None:
        if self._lost:
            return
        self._closing = self._lost = True
        self._stop_reading()
        self._stop_writing()
        if self._timer is not None:
            self._timer.cancel()
        self._unsent.clear()
        self._unsent_bytes = 0
        if goodbye and self._tls is not None and self._open:
            self._tls.goodbye()
            self._try_to_send(self._tls)
        self._sealed = memoryview(b"")
        self._socket.close()
        self._loop.call_soon(self._protocol.connection_lost, error)

    def _try_to_send(self, tls: TlsRecords) -> None:
        """An alert, or a goodbye: nobody waits for it, and the peer may be gone."""
        try:
            self._flush(tls)
        except OSError:
            pass
