"""TLS between a socket's transport and a connection.

TLS of asyncio and uvloop is not used. It sends no alert that tells a peer why it is refused (a Java client then retries
for ever), drops received requests when the peer closes, does not count all unsent bytes, does not limit concurrent
handshakes, and uses twice the memory (docs/figures.md).

Here handshakes run in scheduled steps (`TlsTurns`), and bytes are decrypted directly into the connection's buffer. The
TLS object is created when the peer's first bytes arrive. A connection whose handshake takes longer than HANDSHAKE_S is
closed. As without TLS, a peer may close its side and still receive responses.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from kafkalog_broker.net.connection import Connection
from kafkalog_broker.net.tls_turns import TlsTurns
from kafkalog_broker.runtime.state_machine import next_state
from kafkalog_broker.security.authentication_failed import AuthenticationFailed

if TYPE_CHECKING:
    from kafkalog_broker.security.listener_tls import ListenerTls

PIECE_BYTES = 32 << 10
"""Limit on bytes encrypted in one call, and on one read during the handshake. OpenSSL keeps a buffer as large as the
largest piece, so a larger limit would cost memory per connection."""

RECORDS_AT_ONCE = 512
"""Limit on records decrypted in one step, because each costs time even if it holds one byte."""

HANDSHAKE_S = 30.0
"""Limit of a handshake, which takes three messages. Kafka waits for connections.max.idle.ms."""

MAX_UNSENT_KEY_UPDATE_BYTES = 64 << 10
"""Limit in bytes on unsent responses to key updates. A peer that requests them repeatedly and does not read the
responses is disconnected."""


class TlsState(Enum):
    """State of the TLS session."""

    HANDSHAKING = "handshaking"
    OPEN = "open"  # both sides send
    PEER_CLOSED = "peer closed"  # the peer sent close_notify or ended the stream; responses are still sent
    CLOSING = "closing"  # nothing is read or written any more


TRANSITIONS: Mapping[TlsState, frozenset[TlsState]] = {
    TlsState.HANDSHAKING: frozenset({TlsState.OPEN, TlsState.CLOSING}),
    TlsState.OPEN: frozenset({TlsState.PEER_CLOSED, TlsState.CLOSING}),
    TlsState.PEER_CLOSED: frozenset({TlsState.CLOSING}),
    TlsState.CLOSING: frozenset({TlsState.CLOSING}),  # close, then abort, then connection_lost
}

_ESTABLISHED = frozenset({TlsState.OPEN, TlsState.PEER_CLOSED})


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """Protocol of a socket's transport, and transport of a connection.

    The connection's connection_made is called before the handshake, so that it can refuse the peer.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: Connection, turns: TlsTurns, tls: Callable[[], ListenerTls]
    ) -> None:
        """
        Args:
            loop: The event loop.
            protocol: The connection, created with `is_encrypted`.
            turns: Schedules the handshake, and has the receive buffer.
            tls: Returns the TLS settings; called in every step of the handshake.
        """
        super().__init__()
        self._loop, self._protocol, self._turns, self._settings = loop, protocol, turns, tls
        self._socket: asyncio.Transport | None = None  # until connection_made
        self._handshake_deadline: asyncio.TimerHandle | None = None
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None  # until the peer's first bytes
        self._state = TlsState.HANDSHAKING
        self._wants_data = True  # the connection has not paused reading
        self._is_write_paused = False  # the socket's transport has paused writing
        self._may_have_record = False  # `_received` may hold another whole record, or the end of the stream

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def is_closing(self) -> bool:
        return self._state is TlsState.CLOSING

    def pause_reading(self) -> None:
        self._wants_data = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._wants_data = True
        if self._state in _ESTABLISHED:
            self._loop.call_soon(self._decrypt_received)

    def write(self, data: Any) -> None:
        if self._state is TlsState.CLOSING:
            return
        assert self._tls is not None  # a connection only responds to decrypted requests
        rest, pieces = memoryview(data).cast("B"), []
        try:
            while rest:
                self._tls.write(rest[:PIECE_BYTES])
                pieces.append(self._to_send.read())
                rest = rest[PIECE_BYTES:]
        except OSError:
            self.close()
        else:  # a single write: the transport sees all bytes before it decides whether to call pause_writing
            self._transport.write(b"".join(pieces))

    def close(self) -> None:
        """Send close_notify, or the alert of a failed handshake, and close once all bytes are sent."""
        if self._state is TlsState.CLOSING:
            return
        is_established = self._state in _ESTABLISHED
        self._enter(TlsState.CLOSING)
        if is_established and self._tls is not None:
            try:
                self._tls.unwrap()
            except (OSError, ValueError):
                pass  # close_notify is in `_to_send`; the peer's is not waited for
        self._send()
        self._transport.close()

    def abort(self) -> None:
        self._enter(TlsState.CLOSING)
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._handshake_deadline = self._loop.call_later(HANDSHAKE_S, self._time_out_handshake)
        self._protocol.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(TlsState.CLOSING)
        self._cancel_handshake_deadline()
        self._protocol.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._turns.received if self._state in _ESTABLISHED else self._turns.received[:PIECE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self._received.write(self._turns.received[:nbytes])
        self._handle_received()

    def eof_received(self) -> bool:
        """Handle the end of the stream, with or without close_notify. Return True, because responses are still sent."""
        self._received.write_eof()
        self._handle_received()
        return True

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._protocol.resume_writing()

    @property
    def _transport(self) -> asyncio.Transport:
        assert self._socket is not None
        return self._socket

    def _enter(self, state: TlsState) -> None:
        self._state = next_state(TRANSITIONS, self._state, state)

    def _send(self) -> None:
        self._transport.write(self._to_send.read())

    def _handle_received(self) -> None:
        self._may_have_record = True
        if self._state in _ESTABLISHED:
            self._decrypt_received()
        elif self._state is TlsState.HANDSHAKING:
            self._transport.pause_reading()  # until the step has been taken
            self._turns.schedule(self._handshake_step)

    def _handshake_step(self) -> None:
        if self._state is TlsState.CLOSING:
            return
        settings = self._settings()
        if self._tls is None:
            self._tls = settings.context.wrap_bio(self._received, self._to_send, server_side=True)
        try:
            self._tls.do_handshake()
            principal = settings.principal(self._tls.getpeercert(binary_form=True))
        except ssl.SSLWantReadError:
            self._send()
            self._transport.resume_reading()
        except (OSError, ValueError, AuthenticationFailed) as error:
            self._turns.failed += 1
            self._protocol.handshake_failed(handshake_failure(error))
            self.close()
        else:
            self._turns.done += 1
            self._enter(TlsState.OPEN)
            self._cancel_handshake_deadline()
            self._send()
            self._protocol.handshake_done(principal)
            self.resume_reading()

    def _time_out_handshake(self) -> None:
        if self._state is not TlsState.CLOSING:
            self._protocol.handshake_failed(f"its TLS handshake was not done in {HANDSHAKE_S:.0f} s")
        self.abort()

    def _cancel_handshake_deadline(self) -> None:
        if self._handshake_deadline is not None:
            self._handshake_deadline.cancel()

    def _decrypt_received(self) -> None:
        """Decrypt received bytes until the connection pauses reading; read more once none are left."""
        while self._may_have_record and self._wants_data and self._state is not TlsState.CLOSING:
            buffer = self._protocol.get_buffer(-1)
            try:
                count = self._decrypt(buffer)
            except OSError:
                self.close()
                return
            if count:
                self._protocol.buffer_updated(count)
            if self._state is TlsState.PEER_CLOSED:
                self._transport.pause_reading()
                if not self._protocol.eof_received():
                    self.close()
            elif self._may_have_record and count < len(buffer):  # other connections run before the remaining records
                self._transport.pause_reading()
                self._loop.call_soon(self._decrypt_received)
                break
        if self._to_send.pending > MAX_UNSENT_KEY_UPDATE_BYTES:
            self.abort()
        elif self._state is not TlsState.CLOSING:
            if self._to_send.pending and not self._is_write_paused:
                self._send()
            if self._wants_data and not self._may_have_record and self._state is TlsState.OPEN:
                self._transport.resume_reading()

    def _decrypt(self, into: memoryview) -> int:
        """Decrypt at most RECORDS_AT_ONCE records into `into`, and return the number of bytes.

        Clears `_may_have_record` once no whole record is left, and enters PEER_CLOSED at the end of the stream.
        """
        assert self._tls is not None
        read, received, filled, size = self._tls.read, self._received, 0, len(into)
        for _ in range(RECORDS_AT_ONCE):
            try:
                count: int = read(size - filled, into[filled:])  # type: ignore[arg-type, assignment]  # any buffer
            except ssl.SSLWantReadError:
                break
            except ssl.SSLEOFError:  # without close_notify, as many clients close
                count = 0
            if not count:
                if self._state is TlsState.OPEN:  # OpenSSL reports data after close_notify as a second end of stream
                    self._enter(TlsState.PEER_CLOSED)
                break
            filled += count
            if filled == size:
                self._may_have_record = bool(received.pending or received.eof or self._tls.pending())
                return filled
            if not received.pending and not received.eof:
                break
        else:
            return filled
        self._may_have_record = False
        return filled


def handshake_failure(error: Exception) -> str:
    """Return the reason of a failed handshake, in one line for the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        text = (error.reason or str(error)).lower().replace("_", " ")
        plain = error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE", "BAD_RECORD_TYPE")
        hint = ": the client may not be using TLS; check its security.protocol" if plain else ""
        return f"its TLS handshake failed: {text}{hint}"
    if isinstance(error, AuthenticationFailed):
        return str(error)
    return f"its TLS handshake failed: {error}"
