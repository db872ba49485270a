"""One authentication of one connection: which requests may come in which state, and how long the session lasts.

Decisions only (SaslServerAuthenticator). The mechanisms' own messages are known by `plain` and `scram`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kafkalog_broker.config.sasl_settings import OAUTHBEARER, PLAIN, SCRAM, SaslSettings
from kafkalog_broker.security.oauth_tokens import Token
from kafkalog_broker.security.oauthbearer import OAuthServer
from kafkalog_broker.security.plain import PlainServer
from kafkalog_broker.security.refusal import Refused
from kafkalog_broker.security.scram import Credential, ScramServer


class State(enum.Enum):
    """Where an exchange stands."""

    BEGIN = "begin"
    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    DONE = "done"
    FAILED = "failed"


class Event(enum.Enum):
    """What can come."""

    API_VERSIONS = "ApiVersions"
    HANDSHAKE = "SaslHandshake"
    TOKEN = "SaslAuthenticate"


NEXT: Mapping[tuple[State, Event], State] = {
    (State.BEGIN, Event.API_VERSIONS): State.HANDSHAKE,
    (State.BEGIN, Event.HANDSHAKE): State.TOKENS,
    (State.HANDSHAKE, Event.HANDSHAKE): State.TOKENS,
    (State.TOKENS, Event.TOKEN): State.TOKENS,
}
"""Everything else ends the connection."""


class Mechanism(Protocol):
    """The server's side of one exchange."""

    user: str
    done: bool

    def evaluate(self, token: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Known:
    """What the broker knows of users. find(mechanism, name): what is kept of a user of SCRAM. check: what a token of
    OAUTHBEARER says; raises InvalidToken. now_ms: since 1970, for when tokens end."""

    find: Callable[[str, str], Credential | None]
    check: Callable[[str], Token]
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Session:
    """Who the peer is. `lifetime_ms`: how long until it has to prove it again; None: never; 0: what
    was shown has ended, within what clocks may differ by, and no request is taken."""

    mechanism: str
    principal: str
    lifetime_ms: int | None


class SaslExchange:
    """`session` is there when it has succeeded. again: the session that a re-authentication is to renew (KIP-368)."""

    def __init__(self, settings: SaslSettings, known: Known, again: Session | None = None) -> None:
        self._settings, self._known, self._again = settings, known, again
        self._state = State.BEGIN
        self._mechanism = ""
        self._server: Mechanism | None = None
        self.session: Session | None = None
        self.refused: str | None = None
        """Why it has failed, for the log."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Those that are enabled."""
        return self._settings.mechanisms

    @property
    def wants_tokens(self) -> bool:
        """Whether a mechanism was chosen and its messages are to come."""
        return self._state is State.TOKENS

    def refuse(self, why: str) -> None:
        """Something came that may not come now."""
        self._state = State.FAILED
        self.refused = why

    def may(self, event: Event) -> bool:
        """Whether this may come now."""
        return (self._state, event) in NEXT

    def api_versions(self) -> None:
        """They were asked for and answered."""
        self._state = NEXT[self._state, Event.API_VERSIONS]

    def handshake(self, mechanism: str) -> bool:
        """The peer has chosen; False when that mechanism is not enabled."""
        if mechanism not in self._settings.mechanisms:
            self._state = State.FAILED
            self.refused = f"the mechanism {mechanism[:40]!r} is not enabled"
            return False
        self._state = NEXT[self._state, Event.HANDSHAKE]
        self._mechanism = mechanism
        self._server = _server(mechanism, self._settings, self._known)
        return True

    def token(self, token: bytes) -> bytes:
        """The answer to a message of the mechanism. Raises Refused, whose `shown` is never None then."""
        assert self._server is not None
        again = self._again
        try:
            if again is not None and self._mechanism != again.mechanism:
                raise Refused(
                    f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of "
                    f"mechanism '{again.mechanism}'",
                    "another mechanism",
                )
            answer = self._server.evaluate(token)
            if self._server.done:
                self._complete(self._server.user, getattr(self._server, "expires_ms", None))
        except Refused as error:
            self._state = State.FAILED
            self.refused = f"{self._mechanism}: {error}"
            if error.shown is None:
                what = "authentication" if again is None else "re-authentication"
                error.shown = (
                    f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
                    f"{self._mechanism}"
                )
            raise
        return answer

    def _complete(self, user: str, expires_ms: int | None) -> None:
        """expires_ms: when what was shown ends, since 1970; None: never."""
        principal, again = f"User:{user}", self._again
        if again is not None and principal != again.principal:
            one, other = (text.replace(":", ".", 1) for text in (again.principal, principal))
            raise Refused(f"Cannot change principals during re-authentication from {one}: {other}", "another principal")
        self._state = State.DONE
        bound = self._settings.max_reauth_ms[self._mechanism]
        lifetime = bound if bound > 0 else None
        if expires_ms is not None:
            left = max(0, expires_ms - self._known.now_ms())
            lifetime = left if lifetime is None else min(lifetime, left)
        self.session = Session(self._mechanism, principal, lifetime)


def _server(mechanism: str, settings: SaslSettings, known: Known) -> Mechanism:
    if mechanism == PLAIN:
        return PlainServer(settings.plain_users)
    if mechanism == OAUTHBEARER:
        return OAuthServer(known.check)
    assert mechanism in SCRAM
    return ScramServer(mechanism, lambda name: known.find(mechanism, name))
