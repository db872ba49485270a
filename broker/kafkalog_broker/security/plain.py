"""PLAIN (RFC 4616), as PlainSaslServer checks it."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from kafkalog_broker.security.refusal import Refused

_TOKENS = 3


class PlainServer:
    """One exchange of one message. `user` and `done` once it has succeeded."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """users: name to password."""
        self._users = users
        self.user = ""
        self.done = False

    def evaluate(self, token: bytes) -> bytes:
        """The answer to a client's message. Raises Refused, with the texts that Kafka's clients are shown."""
        tokens = token.decode(errors="replace").split("\0", _TOKENS)
        if len(tokens) != _TOKENS:
            raise _refused(f"Invalid SASL/PLAIN response: expected {_TOKENS} tokens, got {len(tokens)}")
        authzid, user, password = tokens
        if not user:
            raise _refused("Authentication failed: username not specified")
        if not password:
            raise _refused("Authentication failed: password not specified")
        known = self._users.get(user)
        # Somebody who is not known costs the same.
        same = hmac.compare_digest(password.encode(), (known if known is not None else password + "x").encode())
        if known is None or not same:
            raise _refused("Authentication failed: Invalid username or password")
        if authzid and authzid != user:
            raise _refused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user, self.done = user, True
        return b""


def _refused(text: str) -> Refused:
    return Refused(text, text.removeprefix("Authentication failed: "))
