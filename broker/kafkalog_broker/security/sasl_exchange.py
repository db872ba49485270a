"""One SASL authentication of a connection, as a state machine (Kafka: SaslServerAuthenticator). No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from kafkalog_broker.config.sasl_settings import OAUTHBEARER, PLAIN, SaslSettings
from kafkalog_broker.protocol.api_messages import API_VERSIONS
from kafkalog_broker.runtime.state_machine import next_state
from kafkalog_broker.security.jwt import Token
from kafkalog_broker.security.oauth_bearer import oauth_exchange
from kafkalog_broker.security.plain import plain_exchange
from kafkalog_broker.security.sasl_mechanism import Authenticated, Mechanism, SaslFailed
from kafkalog_broker.security.scram import Credential, scram_exchange

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


class SaslState(Enum):
    """State of an exchange, named as in Kafka's SaslServerAuthenticator.SaslState. Values name the next request."""

    HANDSHAKE_OR_VERSIONS_REQUEST = "SaslHandshake or ApiVersions"
    HANDSHAKE_REQUEST = "SaslHandshake, after ApiVersions"
    AUTHENTICATE = "a message of the mechanism"
    COMPLETE = "authenticated"
    FAILED = "refused"


TRANSITIONS: Mapping[SaslState, frozenset[SaslState]] = {
    SaslState.HANDSHAKE_OR_VERSIONS_REQUEST: frozenset(
        {SaslState.HANDSHAKE_REQUEST, SaslState.AUTHENTICATE, SaslState.FAILED}
    ),
    SaslState.HANDSHAKE_REQUEST: frozenset({SaslState.AUTHENTICATE, SaslState.FAILED}),
    SaslState.AUTHENTICATE: frozenset({SaslState.COMPLETE, SaslState.FAILED}),
    SaslState.COMPLETE: frozenset(),
    SaslState.FAILED: frozenset(),
}

EXPECTED_APIS: Mapping[SaslState, tuple[int, ...]] = {
    SaslState.HANDSHAKE_OR_VERSIONS_REQUEST: (API_VERSIONS, SASL_HANDSHAKE),
    SaslState.HANDSHAKE_REQUEST: (SASL_HANDSHAKE,),
    SaslState.AUTHENTICATE: (SASL_AUTHENTICATE,),
    SaslState.COMPLETE: (),
    SaslState.FAILED: (),
}
"""API keys that may come in each state. Any other request ends the connection."""


@dataclass(frozen=True, slots=True)
class CredentialStore:
    """Look-ups with which the mechanisms verify credentials.

    Attributes:
        find_scram_credential: Returns the stored credential for a mechanism and a user name, or None.
        validate_token: Returns an accepted OAUTHBEARER token for its text. Raises InvalidToken.
        now_ms: Returns ms since 1970, for the expiry of tokens.
    """

    find_scram_credential: Callable[[str, str], Credential | None]
    validate_token: Callable[[str], Token]
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Session:
    """An authenticated peer.

    Attributes:
        lifetime_ms: Time until it has to re-authenticate; None: never; 0: the credential has expired within the allowed
            clock skew, so no request is accepted.
    """

    mechanism: str
    principal: str
    lifetime_ms: int | None


class SaslExchange:
    """One authentication.

    Attributes:
        session: The authenticated session, in state COMPLETE.
        failure: Reason for the log, in state FAILED.
    """

    def __init__(self, settings: SaslSettings, credentials: CredentialStore, renewed: Session | None = None) -> None:
        """
        Args:
            settings: SASL of the listener.
            credentials: Stored credentials of clients.
            renewed: Session that a re-authentication renews (KIP-368); None for the first authentication.
        """
        self._settings = settings
        self._credentials = credentials
        self._renewed = renewed
        self.mechanisms = settings.mechanisms
        self.state = SaslState.HANDSHAKE_OR_VERSIONS_REQUEST
        self.session: Session | None = None
        self.failure: str | None = None
        self._mechanism = ""
        self._server: Mechanism | None = None  # None unless it expects a message

    @property
    def expected_apis(self) -> tuple[int, ...]:
        """API keys of which one has to come next."""
        return EXPECTED_APIS[self.state]

    def fail(self, reason: str) -> None:
        """End the exchange. `why` is for the log."""
        self._enter(SaslState.FAILED)
        self.failure = reason

    def record_api_versions(self) -> None:
        """Record that ApiVersions was answered. The client may not repeat it."""
        self._enter(SaslState.HANDSHAKE_REQUEST)

    def handshake(self, mechanism: str) -> bool:
        """Start the mechanism that the client has chosen.

        Returns:
            False if the mechanism is not enabled; the exchange has then failed.
        """
        if mechanism not in self.mechanisms:
            self.fail(f"the mechanism {mechanism[:40]!r} is not enabled")
            return False
        self._enter(SaslState.AUTHENTICATE)
        self._mechanism = mechanism
        if mechanism == PLAIN:
            self._server = plain_exchange(self._settings.plain_users)
        elif mechanism == OAUTHBEARER:
            self._server = oauth_exchange(self._credentials.validate_token)
        else:
            self._server = scram_exchange(mechanism, partial(self._credentials.find_scram_credential, mechanism))
        next(self._server)
        return True

    def authenticate(self, message: bytes) -> bytes:
        """Handle a message of the mechanism and return the response.

        Raises:
            SaslFailed: If the exchange has failed. Its `client_message` is set.
        """
        server = self._server
        self._server = None
        renewed = self._renewed
        assert server is not None
        try:
            if renewed is not None and self._mechanism != renewed.mechanism:
                raise SaslFailed(
                    f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of "
                    f"mechanism '{renewed.mechanism}'",
                    "another mechanism",
                )
            try:
                response = server.send(message)
                self._server = server
            except StopIteration as end:
                response = self._complete(end.value)
        except SaslFailed as error:
            self.fail(f"{self._mechanism}: {error}")
            if error.client_message is None:
                what = "authentication" if renewed is None else "re-authentication"
                error.client_message = (
                    f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
                    f"{self._mechanism}"
                )
            raise
        return response

    def _complete(self, authenticated: Authenticated) -> bytes:
        principal = f"User:{authenticated.user}"
        renewed = self._renewed
        if renewed is not None and principal != renewed.principal:
            before, after = (text.replace(":", ".", 1) for text in (renewed.principal, principal))
            raise SaslFailed(
                f"Cannot change principals during re-authentication from {before}: {after}", "another principal"
            )
        self._enter(SaslState.COMPLETE)
        max_ms = self._settings.max_reauth_ms[self._mechanism]
        lifetime_ms = max_ms if max_ms > 0 else None
        if authenticated.expires_ms is not None:
            left_ms = max(0, authenticated.expires_ms - self._credentials.now_ms())
            lifetime_ms = left_ms if lifetime_ms is None else min(lifetime_ms, left_ms)
        self.session = Session(self._mechanism, principal, lifetime_ms)
        return authenticated.response

    def _enter(self, state: SaslState) -> None:
        self.state = next_state(TRANSITIONS, self.state, state)
