"""SASL/PLAIN (RFC 4616), with the checks and texts of Kafka's PlainSaslServer."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from kafkalog_broker.security.sasl_mechanism import (
    OTHER_AUTHORIZATION_ID,
    Authenticated,
    Mechanism,
    SaslFailed,
)

_TOKENS = 3


def plain_exchange(users: Mapping[str, str]) -> Mechanism:
    """Run a PLAIN exchange, in which the client sends one message.

    Args:
        users: Passwords by user name.

    Raises:
        SaslFailed: If the message is malformed, or the user or password is wrong.
    """
    tokens = (yield b"").decode(errors="replace").split("\0", _TOKENS)
    if len(tokens) != _TOKENS:
        raise _failed(f"Invalid SASL/PLAIN response: expected {_TOKENS} tokens, got {len(tokens)}")
    authzid, user, password = tokens
    if not user:
        raise _failed("Authentication failed: username not specified")
    if not password:
        raise _failed("Authentication failed: password not specified")
    expected = users.get(user)
    # The comparison also runs for an unknown user, so that the time does not disclose whether the user exists.
    is_equal = hmac.compare_digest(password.encode(), (expected if expected is not None else password + "x").encode())
    if expected is None or not is_equal:
        raise _failed("Authentication failed: Invalid username or password")
    if authzid and authzid != user:
        raise _failed(OTHER_AUTHORIZATION_ID)
    return Authenticated(b"", user)


def _failed(client_message: str) -> SaslFailed:
    return SaslFailed(client_message, client_message.removeprefix("Authentication failed: "))
