"""States of a connection and the transitions between them. docs/architecture.md describes the transitions."""

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


TRANSITIONS: Mapping[ConnectionState, frozenset[ConnectionState]] = {
    ConnectionState.ACCEPTED: frozenset(
        {
            ConnectionState.REFUSED,
            ConnectionState.HANDSHAKING,
            ConnectionState.AUTHENTICATING,
            ConnectionState.SERVING,
            ConnectionState.CLOSED,
        }
    ),
    ConnectionState.REFUSED: frozenset({ConnectionState.CLOSED}),
    ConnectionState.HANDSHAKING: frozenset(
        {ConnectionState.AUTHENTICATING, ConnectionState.SERVING, ConnectionState.DRAINING, ConnectionState.CLOSED}
    ),
    ConnectionState.AUTHENTICATING: frozenset(
        {ConnectionState.SERVING, ConnectionState.DRAINING, ConnectionState.CLOSED}
    ),
    ConnectionState.SERVING: frozenset({ConnectionState.DRAINING, ConnectionState.CLOSED}),
    ConnectionState.DRAINING: frozenset({ConnectionState.CLOSED}),
    ConnectionState.CLOSED: frozenset(),
}

READING_STATES = frozenset({ConnectionState.HANDSHAKING, ConnectionState.AUTHENTICATING, ConnectionState.SERVING})
"""States in which bytes from the peer are accepted."""
