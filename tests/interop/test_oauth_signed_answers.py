"""OAUTHBEARER with signed tokens: a real Kafka and our broker share a key file and get the same messages."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from tests.interop.real_kafka import available
from tests.interop.sasl_kafka import Ports, sasl_broker, sasl_kafka
from tests.interop.test_oauth_answers import AGAIN, answers, first, to_ten_seconds

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

PACKAGE = "org.apache.kafka.common.security.oauthbearer."
OWN = "listener.name.sasl_plaintext.oauthbearer."
ISSUER, AUDIENCE = "https://issuer.example", "kafka"
KEYS: Mapping[str, RSAKey | ECKey] = {
    "rsa": RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"}),
    "p256": ECKey.generate_key("P-256", {"kid": "p256", "use": "sig"}),
    "p384": ECKey.generate_key("P-384", {"kid": "p384", "use": "sig"}),
}
OTHERS = RSAKey.generate_key(2048, {"kid": "rsa"})
UNKNOWN = RSAKey.generate_key(2048, {"kid": "unknown"})
NOW = int(time.time())


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    file.write_text(json.dumps({"keys": [key.as_dict(private=False) for key in KEYS.values()]}))
    return file


def security(keys: Path) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{OWN}sasl.jaas.config": f"{PACKAGE}OAuthBearerLoginModule required ;",
        f"{OWN}sasl.server.callback.handler.class": f"{PACKAGE}OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }


@pytest.fixture(scope="module")
def theirs(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    allowed = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{what}={keys.as_uri()}" for what in ("urls", "files")]
    with sasl_kafka(tmp_path_factory.mktemp("kafka"), security(keys), *allowed) as (_, ports):
        yield ports


@pytest.fixture(scope="module")
def ours(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with sasl_broker(tmp_path_factory.mktemp("ours") / "data", security(keys)) as ports:
        yield ports


def signed(key: RSAKey | ECKey = KEYS["rsa"], algorithm: str = "RS256", header: Any = None, **claims: Any) -> str:
    usual = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW - 60, "exp": NOW + 3600, **claims}
    present = {name: value for name, value in usual.items() if value is not None}
    head = {"alg": algorithm, "kid": key.kid} if header is None else header
    return jwt.encode(head, present, key, algorithms=[algorithm])


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def with_public_key_as_secret() -> str:
    """Return a token with an HS256 signature whose secret is the public key (the algorithm confusion attack)."""
    claims = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW - 60, "exp": NOW + 3600}
    head = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(claims)}"
    mac = hmac.new(KEYS["rsa"].as_pem(private=False), head.encode(), hashlib.sha256).digest()
    return f"{head}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def damaged(text: str) -> str:
    head, claims, signature = text.split(".")
    return ".".join((head, claims, ("A" if signature[5] != "A" else "B").join((signature[:5], signature[6:]))))


def with_other_claims(text: str) -> str:
    head, _, signature = text.split(".")
    return ".".join((head, signed(sub="admin").split(".")[1], signature))


TOKENS: dict[str, str] = {
    **{f"good, {name}": signed(KEYS["rsa"], name) for name in ("RS256", "RS384", "RS512")},
    "good, ES256": signed(KEYS["p256"], "ES256"),
    "good, ES384": signed(KEYS["p384"], "ES384"),
    "good, of several audiences": signed(aud=["other", AUDIENCE]),
    "good, with scopes": signed(scope="read write"),
    "good, a list of scopes": signed(scope=["read", "write"]),
    "another key of that name": signed(OTHERS),
    "unknown key": signed(UNKNOWN),
    "an algorithm of another kind of key": signed(KEYS["p256"], "ES256", {"alg": "ES256", "kid": "rsa"}),
    "a damaged signature": damaged(signed()),
    "other claims than were signed": with_other_claims(signed()),
    "no signature": signed().rpartition(".")[0] + ".",
    "unsecured": f"{part({'alg': 'none'})}.{signed().split('.')[1]}.",
    "the public key as a secret": with_public_key_as_secret(),
    "expired": signed(exp=NOW - 600),
    "no expiration": signed(exp=None),
    "no time of issue": signed(iat=None),
    "does not hold yet": signed(nbf=NOW + 600),
    "another issuer": signed(iss="https://other.example"),
    "no issuer": signed(iss=None),
    "another audience": signed(aud="other"),
    "no audience": signed(aud=None),
    "no subject": signed(sub=None),
    "empty subject": signed(sub=" "),
    "an empty scope": signed(scope=["read", ""]),
    "a scope twice": signed(scope=["read", "read"]),
    "two parts": ".".join(signed().split(".")[:2]),
    "no JSON": "YWJj.YWJj.YWJj",
}


@pytest.mark.parametrize("name", TOKENS)
def test_responses_to_signed_tokens_equal_those_of_kafka(name: str, theirs: Ports, ours: Ports) -> None:
    messages = [first(TOKENS[name]), *([] if name.startswith("good") else [AGAIN])]
    said = answers(theirs, messages, to_ten_seconds)
    assert answers(ours, messages) == said
    assert (len(said) == 3 and "failed" not in str(said) and said[1][0] == "none") == name.startswith("good"), said


def test_token_expired_within_the_clock_skew_is_accepted_as_by_kafka(theirs: Ports, ours: Ports) -> None:
    message = [first(signed(exp=int(time.time()) - 1))]
    said = answers(ours, message)
    assert said == answers(theirs, message, to_ten_seconds)
    assert said[1][0] == "none"
