"""What a connection is to the transport with TLS, where it comes from, and in words why its handshake failed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from kafkalog_broker.security.refusal import NotAuthenticated


class Peer(Protocol):
    """What a connection is to this transport (`connection.Connection`)."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def secured(self, principal: str) -> None: ...
    def not_secured(self, why: str) -> None: ...


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
