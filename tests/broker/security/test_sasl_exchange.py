"""One authentication: order of requests, errors for clients, re-authentication (KIP-368)."""

from __future__ import annotations

import pytest

from kafkalog_broker.config.sasl_settings import SaslSettings
from kafkalog_broker.protocol.api_messages import API_VERSIONS
from kafkalog_broker.security.jwt import InvalidToken, Token
from kafkalog_broker.security.sasl_exchange import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    CredentialStore,
    SaslExchange,
    Session,
)
from kafkalog_broker.security.sasl_mechanism import SaslFailed
from kafkalog_broker.security.scram import Credential

USERS = {"alice": "secret", "bob": "other"}


def nobody(mechanism: str, name: str) -> Credential | None:
    return None


def no_token(text: str) -> Token:
    raise InvalidToken("there are none here")


KNOWN = CredentialStore(nobody, no_token, lambda: 0)


def exchange(again: Session | None = None, reauth_ms: int = 0) -> SaslExchange:
    mechanisms = ("PLAIN", "SCRAM-SHA-256")
    settings = SaslSettings(mechanisms, USERS, dict.fromkeys(mechanisms, reauth_ms), 1000, 100)
    return SaslExchange(settings, KNOWN, again)


def plain(user: str = "alice", password: str = "secret", authzid: str = "") -> bytes:
    return f"{authzid}\0{user}\0{password}".encode()


def allowed(one: SaslExchange) -> tuple[int, ...]:
    return one.expected_apis


def test_allowed_requests_follow_the_order_of_an_exchange():
    one = exchange()
    assert allowed(one) == (API_VERSIONS, SASL_HANDSHAKE)
    one.record_api_versions()
    assert allowed(one) == (SASL_HANDSHAKE,)
    assert one.handshake("PLAIN")
    assert allowed(one) == (SASL_AUTHENTICATE,)
    assert one.authenticate(plain()) == b""
    assert allowed(one) == ()
    assert one.session == Session("PLAIN", "User:alice", None)


def test_disabled_mechanism_ends_the_exchange():
    one = exchange()
    assert not one.handshake("SCRAM-SHA-512")
    assert one.failure == "the mechanism 'SCRAM-SHA-512' is not enabled"
    assert (one.expected_apis, one.session) == ((), None)


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (plain(password="x"), "Authentication failed: Invalid username or password"),
        (plain(user="carol"), "Authentication failed: Invalid username or password"),
        (plain(user=""), "Authentication failed: username not specified"),
        (plain(password=""), "Authentication failed: password not specified"),
        (
            plain(authzid="bob"),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0\xff\xfe", "Authentication failed: Invalid username or password"),
    ],
)
def test_plain_error_messages_equal_those_of_kafka(token: bytes, shown: str):
    one = exchange()
    one.handshake("PLAIN")
    with pytest.raises(SaslFailed) as error:
        one.authenticate(token)
    assert error.value.client_message == shown
    assert one.failure is not None
    assert "secret" not in one.failure
    assert (one.expected_apis, one.session) == ((), None)


def test_authorization_id_equal_to_the_user_is_accepted():
    one = exchange()
    one.handshake("PLAIN")
    assert one.authenticate(plain(authzid="alice")) == b""
    assert one.session is not None
    assert one.session.principal == "User:alice"


@pytest.mark.parametrize("again", [None, Session("SCRAM-SHA-256", "User:alice", 1)])
def test_scram_error_does_not_disclose_the_reason(again: Session | None):
    one = exchange(again)
    one.handshake("SCRAM-SHA-256")
    with pytest.raises(SaslFailed) as error:
        one.authenticate(b"n,,n=alice,r=x")
    what = "re-authentication" if again else "authentication"
    assert error.value.client_message == (
        f"Authentication failed during {what} due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert one.failure == "SCRAM-SHA-256: there is no such user with this mechanism"


def test_session_lifetime_is_the_configured_one():
    one = exchange(reauth_ms=5000)
    one.handshake("PLAIN")
    one.authenticate(plain())
    assert one.session == Session("PLAIN", "User:alice", 5000)
    again = exchange(one.session, reauth_ms=5000)
    again.handshake("PLAIN")
    again.authenticate(plain())
    assert again.session == one.session


@pytest.mark.parametrize(
    ("mechanism", "token", "shown"),
    [
        (
            "PLAIN",
            plain("bob", "other"),
            "Cannot change principals during re-authentication from User.alice: User.bob",
        ),
        (
            "SCRAM-SHA-256",
            b"n,,n=alice,r=x",
            (
                "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of "
                "mechanism 'PLAIN'"
            ),
        ),
    ],
)
def test_reauthentication_as_another_principal_is_refused(mechanism: str, token: bytes, shown: str):
    one = exchange(Session("PLAIN", "User:alice", 5000))
    one.handshake(mechanism)
    with pytest.raises(SaslFailed) as error:
        one.authenticate(token)
    assert error.value.client_message == shown
    assert one.session is None
