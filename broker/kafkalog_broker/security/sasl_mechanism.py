"""Server side of a SASL mechanism, as a generator of responses, which scram.py, plain.py and oauth_bearer.py
implement."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from kafkalog_broker.security.authentication_failed import AuthenticationFailed

OTHER_AUTHORIZATION_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"  # Kafka's text
)


class SaslFailed(AuthenticationFailed):
    """A SASL exchange was refused.

    Attributes:
        client_message: Text for the client; None for a generic one, which does not disclose whether the user exists.
    """

    def __init__(self, client_message: str | None, reason: str) -> None:
        super().__init__(reason)
        self.client_message = client_message


@dataclass(frozen=True, slots=True)
class Authenticated:
    """Successful end of an exchange.

    Attributes:
        response: Last response to the client.
        user: Authenticated name.
        expires_ms: When the credential expires, in ms since 1970; None if it does not.
    """

    response: bytes
    user: str
    expires_ms: int | None = None


Mechanism = Generator[bytes, bytes, Authenticated]
"""Generator that receives the client's messages with `send` and yields the responses. The first `next`
only starts it and yields b"". Raises SaslFailed."""
