"""Valid, damaged and random messages of each mechanism: only valid ones authenticate a client."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.config.sasl_settings import OAUTHBEARER, PLAIN, SCRAM_MECHANISMS, SaslSettings
from kafkalog_broker.security.jwt import InvalidToken, Token, check_signed_token
from kafkalog_broker.security.sasl_exchange import SASL_AUTHENTICATE, CredentialStore, SaslExchange
from kafkalog_broker.security.sasl_mechanism import SaslFailed
from kafkalog_broker.security.scram import MIN_ITERATIONS, Credential, derive_credential, salt_password
from tests.broker.security.test_oauth import EC, KEYS, NOW_MS, OTHER, SIGNED, first, token, unsigned
from tests.searches import examples

MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
KEPT = {
    mechanism: derive_credential(
        mechanism, salt_password(mechanism, "secret", b"salt", MIN_ITERATIONS), b"salt", MIN_ITERATIONS
    )
    for mechanism in SCRAM_MECHANISMS
}
"""What is kept of the one user, alice."""


def find(mechanism: str, name: str) -> Credential | None:
    return KEPT[mechanism] if name == "alice" else None


def check(text: str) -> Token:
    return check_signed_token(text, KEYS, SIGNED, NOW_MS)


def exchange(mechanism: str) -> SaslExchange:
    known = SaslSettings(MECHANISMS, {"alice": "secret"}, dict.fromkeys(MECHANISMS, 0), 1000, 100)
    made = SaslExchange(known, CredentialStore(find, check, lambda: NOW_MS))
    assert made.handshake(mechanism)
    return made


RIGHT = {
    PLAIN: b"\0alice\0secret",
    **dict.fromkeys(SCRAM_MECHANISMS, b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL"),
    OAUTHBEARER: first(token()),
}
WRONG = {
    PLAIN: [b"\0alice\0wrong", b"\0carol\0secret", b"bob\0alice\0wrong"],
    **{key: [b"c=biws,r=x,p=AAAA", b"n,,n=carol,r=abc", b"p=tls-unique,,n=alice,r=abc"] for key in SCRAM_MECHANISMS},
    OAUTHBEARER: [first(token(OTHER)), first(unsigned()), first(token(exp=1)), b"\x01"],
}


def test_valid_messages_are_answered() -> None:
    for mechanism, message in RIGHT.items():
        one = exchange(mechanism)
        assert one.authenticate(message) is not None
        assert (one.session is not None) == (mechanism not in SCRAM_MECHANISMS)


@st.composite
def damaged(draw: st.DrawFn, message: bytes) -> bytes:
    data = bytearray(message)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 5))] = draw(st.binary(max_size=6))
    return bytes(data)


def messages(mechanism: str) -> st.SearchStrategy[list[bytes]]:
    known = [RIGHT[mechanism], *WRONG[mechanism]] if mechanism in SCRAM_MECHANISMS else WRONG[mechanism]
    pieces = st.lists(st.sampled_from([b"n,", b"n=alice", b",r=", b"auth=Bearer ", b"\x01", b"\0", b"e30.e30.", b","]))
    one = st.one_of(
        st.binary(max_size=200), st.sampled_from(known), st.sampled_from(known).flatmap(damaged), pieces.map(b"".join)
    )
    return st.lists(one, min_size=1, max_size=4)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@settings(max_examples=examples(1000), deadline=None)
@given(data=st.data())
def test_damaged_messages_never_authenticate(mechanism: str, data: st.DataObject) -> None:
    one: Any = exchange(mechanism)
    for message in data.draw(messages(mechanism)):
        if SASL_AUTHENTICATE not in one.expected_apis:
            break
        shown: str | None = ""
        try:
            assert isinstance(one.authenticate(message), bytes)
        except SaslFailed as error:
            shown = error.client_message
        assert shown is not None
        assert (one.failure is not None) == bool(shown)
        assert "secret" not in f"{one.failure}{shown}"
    assert one.session is None


@settings(max_examples=examples(1000), deadline=None)
@given(data=st.data())
def test_damaged_token_is_refused_or_decodes_to_the_same_token(data: st.DataObject) -> None:
    """Base64 has several spellings of the same bytes, and a parser may know more of them."""
    text = data.draw(damaged(token(EC).encode())).decode("latin-1")
    try:
        found = check_signed_token(text, KEYS, SIGNED, NOW_MS)
    except InvalidToken:
        return
    assert found == check(token())
