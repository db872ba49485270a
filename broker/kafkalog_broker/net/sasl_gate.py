"""Gate of a SASL listener's connections: no request is served before the peer has authenticated.

While it has not, only ApiVersions, SaslHandshake and SaslAuthenticate come through, in the order that `SaslExchange`
allows. A session that ends is renewed on the same connection (KIP-368), or the next request closes it.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from kafkalog_broker.config.listener_settings import SaslSettings
from kafkalog_broker.net.dispatch import Answer, ConnectionClosed, Dispatch, Frame, answer_of
from kafkalog_broker.protocol.api_registry import ConnectionInfo, registry
from kafkalog_broker.protocol.codec import API_VERSIONS, api_name
from kafkalog_broker.security.sasl import AUTHENTICATE, HANDSHAKE, KnownUsers, Refused, SaslExchange, Session

_HANDSHAKE = HANDSHAKE.to_bytes(2, "big")
_KEY_AND_VERSION = struct.Struct(">hh")

AGAIN_S = 1.0  # re-authentications of a connection are so far apart at least, as in Kafka


class SaslGate:
    """A Dispatch. settings: asked at each exchange. authenticated: called with the principal. clock: seconds."""

    def __init__(
        self,
        settings: Callable[[], SaslSettings],
        known: KnownUsers,
        serve: Dispatch,
        authenticated: Callable[[str], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._settings, self._known, self._serve = settings, known, serve
        self._authenticated, self._clock = authenticated, clock
        self._free = False  # authenticated for ever
        self._session: Session | None = None
        self._ends = self._begun_again = 0.0
        self._raw = False  # tokens come as frames without a header: SaslHandshake 0
        self._exchange: SaslExchange | None = SaslExchange(settings(), known)

    def __call__(self, frame: Frame, connection: ConnectionInfo) -> Answer | Coroutine[Any, Any, Answer]:
        return self._serve(frame, connection) if self._free else self._guarded(frame, connection)

    @property
    def max_request_bytes(self) -> int:
        """Largest request before the sender is known, in bytes."""
        return self._settings().max_receive_bytes

    async def _guarded(self, frame: Frame, connection: ConnectionInfo) -> Answer:
        if self._exchange is None:
            now = self._clock()
            if frame[:2] == _HANDSHAKE and (not self._begun_again or now - self._begun_again >= AGAIN_S):
                self._begun_again = now
                self._exchange, self._raw = SaslExchange(self._settings(), self._known, self._session), False
            elif now >= self._ends:
                raise ConnectionClosed("its session has expired, and it has not authenticated again", logging.INFO)
            else:
                served = self._serve(frame, connection)
                del frame  # as without a gate: it need not stay while it is handled
                return await answer_of(served)
        return await self._authenticate(self._exchange, frame, connection)

    async def _authenticate(self, exchange: SaslExchange, frame: Frame, connection: ConnectionInfo) -> Answer:
        pieces: Answer
        if self._raw:
            try:
                token = exchange.token(bytes(frame))
                pieces = [struct.pack(">i", len(token)) + token]
            except Refused:
                pieces = None  # there is no frame for an error
        else:
            key, version = _expected(exchange, frame)
            connection.sasl = exchange
            try:
                pieces = await answer_of(self._serve(frame, connection))
            finally:
                connection.sasl = None
            if key == API_VERSIONS and registry()[API_VERSIONS].serves(version):
                exchange.api_versions()
            self._raw = key == HANDSHAKE and version == 0
        if exchange.refused is not None:
            # The answer is what a client that guesses passwords waits for.
            await asyncio.sleep(self._settings().failed_delay_ms / 1000)
            raise ConnectionClosed(f"not authenticated: {exchange.refused}", logging.WARNING, pieces)
        if (session := exchange.session) is not None:
            self._exchange, self._session, self._raw = None, session, False
            self._ends = self._clock() + (session.lifetime_ms or 0) / 1000
            self._free = session.lifetime_ms is None
            self._authenticated(session.principal)
        return pieces


def _expected(exchange: SaslExchange, frame: Frame) -> tuple[int, int]:
    """API key and version of a request. Raises ConnectionClosed for one that may not come now."""
    if len(frame) < _KEY_AND_VERSION.size:
        raise ConnectionClosed(f"a frame of {len(frame)} bytes has no room for a request header")
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    if key == HANDSHAKE and AUTHENTICATE in exchange.expected:
        exchange.refuse("it sent a second SaslHandshake")  # which is answered
    elif key not in exchange.expected:
        name = api_name(key) if key in registry() else f"API key {key}"
        raise ConnectionClosed(f"it sent {name} where it has to authenticate first (is its sasl.mechanism set?)")
    return key, version
