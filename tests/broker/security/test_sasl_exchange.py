"""One authentication: the order of requests, what a client is told, re-authentication (KIP-368)."""

from __future__ import annotations

import pytest

from kafkalog_broker.config.listener_settings import SaslSettings
from kafkalog_broker.protocol.api_messages import API_VERSIONS
from kafkalog_broker.security.oauth_tokens import InvalidToken, Token
from kafkalog_broker.security.sasl import (
    AUTHENTICATE,
    HANDSHAKE,
    Credential,
    KnownUsers,
    Refused,
    SaslExchange,
    Session,
)

USERS = {"alice": "secret", "bob": "other"}


def nobody(mechanism: str, name: str) -> Credential | None:
    return None


def no_token(text: str) -> Token:
    raise InvalidToken("there are none here")


KNOWN = KnownUsers(nobody, no_token, lambda: 0)


def exchange(again: Session | None = None, reauth_ms: int = 0) -> SaslExchange:
    mechanisms = ("PLAIN", "SCRAM-SHA-256")
    settings = SaslSettings(mechanisms, USERS, dict.fromkeys(mechanisms, reauth_ms), 1000, 100)
    return SaslExchange(settings, KNOWN, again)


def plain(user: str = "alice", password: str = "secret", authzid: str = "") -> bytes:
    return f"{authzid}\0{user}\0{password}".encode()


def allowed(one: SaslExchange) -> tuple[int, ...]:
    return one.expected


def test_requests_come_in_order():
    one = exchange()
    assert allowed(one) == (API_VERSIONS, HANDSHAKE)
    one.api_versions()
    assert allowed(one) == (HANDSHAKE,)
    assert one.handshake("PLAIN")
    assert allowed(one) == (AUTHENTICATE,)
    assert one.token(plain()) == b""
    assert allowed(one) == ()
    assert one.session == Session("PLAIN", "User:alice", None)


def test_a_mechanism_that_is_not_enabled_is_the_end():
    one = exchange()
    assert not one.handshake("SCRAM-SHA-512")
    assert one.refused == "the mechanism 'SCRAM-SHA-512' is not enabled"
    assert (one.expected, one.session) == ((), None)


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
def test_what_plain_tells_a_client_is_kafkas(token: bytes, shown: str):
    one = exchange()
    one.handshake("PLAIN")
    with pytest.raises(Refused) as error:
        one.token(token)
    assert error.value.shown == shown
    assert one.refused is not None
    assert "secret" not in one.refused
    assert (one.expected, one.session) == ((), None)


def test_an_authorization_id_that_is_the_user_is_taken():
    one = exchange()
    one.handshake("PLAIN")
    assert one.token(plain(authzid="alice")) == b""
    assert one.session is not None
    assert one.session.principal == "User:alice"


@pytest.mark.parametrize("again", [None, Session("SCRAM-SHA-256", "User:alice", 1)])
def test_scram_tells_nobody_why(again: Session | None):
    one = exchange(again)
    one.handshake("SCRAM-SHA-256")
    with pytest.raises(Refused) as error:
        one.token(b"n,,n=alice,r=x")
    what = "re-authentication" if again else "authentication"
    assert error.value.shown == (
        f"Authentication failed during {what} due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert one.refused == "SCRAM-SHA-256: there is no such user with this mechanism"


def test_a_session_lasts_as_long_as_the_configuration_says():
    one = exchange(reauth_ms=5000)
    one.handshake("PLAIN")
    one.token(plain())
    assert one.session == Session("PLAIN", "User:alice", 5000)
    again = exchange(one.session, reauth_ms=5000)
    again.handshake("PLAIN")
    again.token(plain())
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
def test_who_authenticates_again_stays_who_it_is(mechanism: str, token: bytes, shown: str):
    one = exchange(Session("PLAIN", "User:alice", 5000))
    one.handshake(mechanism)
    with pytest.raises(Refused) as error:
        one.token(token)
    assert error.value.shown == shown
    assert one.session is None
