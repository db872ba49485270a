"""States of a connection and the transitions between them. docs/architecture.md explains when each happens."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class ConnectionState(Enum):
    """State of a connection. It determines what happens to bytes from the peer."""

    ACCEPTED = "accepted"  # the limits on connections have not been checked
    REFUSED = "refused"  # above a limit: nothing is read, and the connection is closed, perhaps after a delay
    HANDSHAKING = "handshaking"  # the TLS handshake is in progress
    AUTHENTICATING = "authenticating"  # the first SASL exchange is in progress; only its requests are allowed
    SERVING = "serving"  # requests are handled; this includes SASL re-authentication
    DRAINING = "draining"  # no bytes are accepted; received requests are handled or dropped, then it closes
    CLOSED = "closed"  # the transport is gone


_S = ConnectionState

TRANSITIONS: Mapping[ConnectionState, frozenset[ConnectionState]] = {
    _S.ACCEPTED: frozenset({_S.REFUSED, _S.HANDSHAKING, _S.AUTHENTICATING, _S.SERVING, _S.CLOSED}),
    _S.REFUSED: frozenset({_S.CLOSED}),
    _S.HANDSHAKING: frozenset({_S.AUTHENTICATING, _S.SERVING, _S.DRAINING, _S.CLOSED}),
    _S.AUTHENTICATING: frozenset({_S.SERVING, _S.DRAINING, _S.CLOSED}),
    _S.SERVING: frozenset({_S.DRAINING, _S.CLOSED}),
    _S.DRAINING: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}

READING_STATES = frozenset({_S.HANDSHAKING, _S.AUTHENTICATING, _S.SERVING})
"""States in which bytes from the peer are accepted."""
