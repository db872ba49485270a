"""Gate of connections to listeners with SASL: the peer must authenticate before its requests are handled.

Until then only ApiVersions, SaslHandshake and SaslAuthenticate are accepted, in the order that `SaslExchange` allows. A
client renews a session with a lifetime on the same connection (KIP-368). Otherwise the first request after the end of
the session closes the connection.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from time import monotonic

from kafkalog_broker.config.sasl_settings import SaslSettings
from kafkalog_broker.net.dispatch import ConnectionClosed, Dispatch, Frame, MaybeAwaitable, ResponsePieces, response_of
from kafkalog_broker.protocol.api_messages import API_VERSIONS, api_name
from kafkalog_broker.protocol.api_registry import registry
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.runtime.state_machine import next_state
from kafkalog_broker.security.sasl_exchange import (
    SASL_HANDSHAKE,
    CredentialStore,
    SaslExchange,
    SaslState,
    Session,
)
from kafkalog_broker.security.sasl_mechanism import SaslFailed

MIN_REAUTH_INTERVAL_S = 1.0  # between two re-authentications of a connection, as in Kafka

_SASL_HANDSHAKE = SASL_HANDSHAKE.to_bytes(2, "big")
_KEY_AND_VERSION = struct.Struct(">hh")


class GateState(Enum):
    """State of the gate. The value describes the next request."""

    AUTHENTICATING = "part of the first exchange"
    OPEN = "handled; the session has no end"
    IN_SESSION = "handled until the session ends; a SaslHandshake starts a re-authentication"
    REAUTHENTICATING = "part of an exchange that renews the session"


_STATES_AFTER_EXCHANGE = frozenset({GateState.OPEN, GateState.IN_SESSION})

TRANSITIONS: Mapping[GateState, frozenset[GateState]] = {
    GateState.AUTHENTICATING: _STATES_AFTER_EXCHANGE,
    GateState.IN_SESSION: frozenset({GateState.REAUTHENTICATING}),
    GateState.REAUTHENTICATING: _STATES_AFTER_EXCHANGE,
    GateState.OPEN: frozenset(),
}


class SaslGate:
    """Dispatch of one connection that must authenticate."""

    def __init__(
        self,
        current_settings: Callable[[], SaslSettings],
        credentials: CredentialStore,
        serve: Dispatch,
        on_authenticated: Callable[[str], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """
        Args:
            current_settings: Returns the listener's current settings; called once per exchange.
            credentials: Verifies users and tokens.
            serve: Dispatch of accepted requests.
            on_authenticated: Called with the principal after each successful exchange.
            clock: Monotonic seconds.
        """
        self._current_settings = current_settings
        self._credentials = credentials
        self._serve = serve
        self._on_authenticated = on_authenticated
        self._clock = clock
        self._state = GateState.AUTHENTICATING
        self._exchange: SaslExchange | None = SaslExchange(current_settings(), credentials)  # while one is in progress
        self._has_bare_tokens = False  # SaslHandshake v0: the mechanism's messages come as frames without a header
        self._session: Session | None = None
        self._session_end_s = 0.0
        self._reauth_start_s: float | None = None  # when the last re-authentication started

    @property
    def max_request_bytes(self) -> int:
        """Largest request before the peer has authenticated."""
        return self._current_settings().max_receive_bytes

    def __call__(self, frame: Frame, connection: ConnectionInfo) -> MaybeAwaitable:
        if self._state is GateState.OPEN:
            return self._serve(frame, connection)
        return self._handle(frame, connection)

    async def _handle(self, frame: Frame, connection: ConnectionInfo) -> ResponsePieces:
        if self._exchange is None:
            if not self._try_begin_reauthentication(frame):
                if self._clock() >= self._session_end_s:
                    raise ConnectionClosed("its session has expired without re-authentication", logging.INFO)
                served = self._serve(frame, connection)
                del frame  # as without a gate: the frame need not stay in memory while it is handled
                return await response_of(served)
            self._state = next_state(TRANSITIONS, self._state, GateState.REAUTHENTICATING)
            self._exchange = SaslExchange(self._current_settings(), self._credentials, self._session)
            self._has_bare_tokens = False
        return await self._authenticate(self._exchange, frame, connection)

    def _try_begin_reauthentication(self, frame: Frame) -> bool:
        """True for a SaslHandshake, unless the previous re-authentication started too recently."""
        if frame[:2] != _SASL_HANDSHAKE:
            return False
        now = self._clock()
        if self._reauth_start_s is not None and now - self._reauth_start_s < MIN_REAUTH_INTERVAL_S:
            return False
        self._reauth_start_s = now
        return True

    async def _authenticate(self, exchange: SaslExchange, frame: Frame, connection: ConnectionInfo) -> ResponsePieces:
        pieces: ResponsePieces
        if self._has_bare_tokens:
            try:
                token = exchange.authenticate(bytes(frame))
                pieces = [struct.pack(">i", len(token)) + token]
            except SaslFailed:
                pieces = None  # without a header there is no error response
        else:
            pieces = await self._handle_sasl_request(exchange, frame, connection)
        if exchange.failure is not None:
            # The response is delayed, to slow down clients that guess passwords.
            await asyncio.sleep(self._current_settings().failed_delay_ms / 1000)
            raise ConnectionClosed(f"not authenticated: {exchange.failure}", logging.WARNING, pieces)
        if exchange.session is not None:
            self._start_session(exchange.session)
        return pieces

    async def _handle_sasl_request(
        self, exchange: SaslExchange, frame: Frame, connection: ConnectionInfo
    ) -> ResponsePieces:
        key, version = _expected_request(exchange, frame)
        connection.sasl = exchange
        try:
            pieces = await response_of(self._serve(frame, connection))
        finally:
            connection.sasl = None
        if key == API_VERSIONS and registry()[API_VERSIONS].serves(version):
            exchange.record_api_versions()
        self._has_bare_tokens = key == SASL_HANDSHAKE and version == 0
        return pieces

    def _start_session(self, session: Session) -> None:
        self._exchange = None
        self._session = session
        self._has_bare_tokens = False
        if session.lifetime_ms is None:
            self._state = next_state(TRANSITIONS, self._state, GateState.OPEN)
        else:
            self._state = next_state(TRANSITIONS, self._state, GateState.IN_SESSION)
            self._session_end_s = self._clock() + session.lifetime_ms / 1000
        self._on_authenticated(session.principal)


NewSaslGate = Callable[[Dispatch, Callable[[str], None]], SaslGate]
"""Makes the gate of a new connection from the dispatch of accepted requests and the callback `on_authenticated`."""


def _expected_request(exchange: SaslExchange, frame: Frame) -> tuple[int, int]:
    """Return API key and version of a request. Raises ConnectionClosed if the exchange does not expect it."""
    if len(frame) < _KEY_AND_VERSION.size:
        raise ConnectionClosed(f"a frame of {len(frame)} bytes has no room for a request header")
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    if key == SASL_HANDSHAKE and exchange.state is SaslState.AUTHENTICATE:
        exchange.fail("it sent a second SaslHandshake")  # the handler responds with an error
    elif key not in exchange.expected_apis:
        name = api_name(key) if key in registry() else f"API key {key}"
        raise ConnectionClosed(f"it sent {name} where it has to authenticate first (is its sasl.mechanism set?)")
    return key, version
