"""SASL/OAUTHBEARER (RFC 7628, KIP-255), with the checks of Kafka's OAuthBearerSaslServer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from kafkalog_broker.security.jwt import InvalidToken, Token
from kafkalog_broker.security.sasl_mechanism import Authenticated, Mechanism, SaslFailed

_CLIENT_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01",
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_ERROR_CONFIRMED = b"\x01"


def oauth_exchange(validate_token: Callable[[str], Token]) -> Mechanism:
    """Run an OAUTHBEARER exchange: the client sends a token, and after a refusal a message that confirms it.

    Args:
        validate_token: Returns the accepted token for its text. Raises InvalidToken.

    Raises:
        SaslFailed: If the token was refused, or the client requests another authorization ID.
    """
    message = yield b""
    while True:
        first = _client_first(message)
        try:
            token = validate_token(first.token)
            break
        except InvalidToken as refusal:
            # Kafka's JSON, with its spaces.
            scope = "" if refusal.scope is None else f', "scope":{json.dumps(refusal.scope)}'
        error = f'{{"status":"{"insufficient_scope" if scope else "invalid_token"}"{scope}}}'
        message = yield error.encode()
        if message == _ERROR_CONFIRMED:
            raise SaslFailed(error, "the token was refused")
    if first.authorization_id and first.authorization_id != token.subject:
        raise SaslFailed(
            "Authentication failed: Client requested an authorization id "
            f"({first.authorization_id}) that is different from the token's principal name ({token.subject})",
            "another authorization id",
        )
    return Authenticated(b"", token.subject, token.expires_ms)


class _ClientFirst(NamedTuple):
    """First message of a client. `authorization_id` is empty if the message has none."""

    authorization_id: str
    token: str


def _client_first(message: bytes) -> _ClientFirst:
    parts = _CLIENT_FIRST.fullmatch(message.decode(errors="replace"))
    if parts is None:
        raise SaslFailed(None, "the client's first message is malformed")
    pairs = dict(pair.split("=", 1) for pair in parts["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise SaslFailed(None, "the client's first message has no bearer token")
    return _ClientFirst(parts["authzid"] or "", auth["token"])
