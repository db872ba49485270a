"""OAUTHBEARER (RFC 7628, KIP-255): the server's side of an exchange (OAuthBearerSaslServer)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from kafkalog_broker.security.oauth_tokens import InvalidToken, Token
from kafkalog_broker.security.refusal import Refused

_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01",
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_AFTER_AN_ERROR = b"\x01"


class OAuthServer:
    """One exchange: a token, and an answer. `user`, `done` and `expires_ms` (since 1970) once it has succeeded."""

    def __init__(self, check: Callable[[str], Token]) -> None:
        """check: what a token says; raises InvalidToken."""
        self._check = check
        self._error: str | None = None
        self.user = ""
        self.done = False
        self.expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        """The answer to a client's message: an error is one too, until the client has confirmed it. Raises Refused."""
        if self._error is not None and token == _AFTER_AN_ERROR:
            raise Refused(self._error, "the token was refused")
        self._error = None
        authzid, text = _first(token)
        try:
            found = self._check(text)
        except InvalidToken as error:
            self._error = _as_json(error)
            return self._error.encode()
        if authzid and authzid != found.subject:
            raise Refused(
                f"Authentication failed: Client requested an authorization id ({authzid}) that is different from the "
                f"token's principal name ({found.subject})",
                "another authorization id",
            )
        self.user, self.expires_ms, self.done = found.subject, found.expires_ms, True
        return b""


def _first(message: bytes) -> tuple[str, str]:
    """Authorization id and token."""
    found = _FIRST.fullmatch(message.decode(errors="replace"))
    if found is None:
        raise Refused(None, "the client's first message is malformed")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise Refused(None, "the client's first message has no bearer token")
    return found["authzid"] or "", auth["token"]


def _as_json(error: InvalidToken) -> str:
    """As Kafka writes it, with its spaces."""
    if error.scope is None:
        return '{"status":"invalid_token"}'
    return '{"status":"insufficient_scope", "scope":' + json.dumps(error.scope) + "}"
