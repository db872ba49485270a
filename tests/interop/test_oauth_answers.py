"""OAUTHBEARER with unsecured tokens: a real Kafka and our broker get the same messages."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalog_broker.testing_support.client_requests import ask
from tests.interop.real_kafka import available
from tests.interop.sasl_kafka import Ports, sasl_broker, sasl_kafka
from tests.interop.test_sasl_answers import METADATA, connected, handshake, token, told

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

PACKAGE = "org.apache.kafka.common.security.oauthbearer."
OWN = "listener.name.sasl_plaintext.oauthbearer."
SECURITY = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    f"{OWN}sasl.jaas.config": f'{PACKAGE}OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker" '
    'unsecuredValidatorRequiredScope="write" unsecuredValidatorAllowableClockSkewMs="3000";',
    f"{OWN}sasl.server.callback.handler.class": f"{PACKAGE}internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler",
}


@pytest.fixture(scope="module")
def kafka_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with sasl_kafka(tmp_path_factory.mktemp("kafka"), SECURITY) as (_, ports):
        yield ports


@pytest.fixture(scope="module")
def broker_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with sasl_broker(tmp_path_factory.mktemp("ours") / "data", SECURITY) as ports:
        yield ports


def jwt(header: Any = None, signature: str = "", **claims: Any) -> str:
    now = int(time.time())
    usual = {"sub": "alice", "iat": now - 60, "exp": now + 3600, "scope": "write", **claims}
    present = {name: value for name, value in usual.items() if value is not None}
    parts = (json.dumps(part).encode() for part in ({"alg": "none"} if header is None else header, present))
    return ".".join(base64.b64encode(part).decode().rstrip("=") for part in parts) + "." + signature


def first(text: str, authzid: str = "", more: str = "") -> bytes:
    return f"n,{authzid},\x01auth=Bearer {text}\x01{more}\x01".encode()


NOW = int(time.time())
AGAIN = b"\x01"
MESSAGES: dict[str, list[bytes]] = {
    "good": [first(jwt())],
    "good, several scopes": [first(jwt(scope=["read", "write"]))],
    "good, with extensions": [first(jwt(), more="traceId=123\x01")],
    "own authorization id": [first(jwt(), "a=alice")],
    "another authorization id": [first(jwt(), "a=bob")],
    "no scope": [first(jwt(scope=None)), AGAIN],
    "another scope": [first(jwt(scope="read")), AGAIN],
    "expired": [first(jwt(exp=NOW - 600)), AGAIN],
    "no expiration": [first(jwt(exp=None)), AGAIN],
    "expiration is a text": [first(jwt(exp="soon")), AGAIN],
    "of the future": [first(jwt(iat=NOW + 600)), AGAIN],
    "ends before it begins": [first(jwt(iat=NOW, exp=NOW - 1)), AGAIN],
    "no subject": [first(jwt(sub=None)), AGAIN],
    "empty subject": [first(jwt(sub=" ")), AGAIN],
    "subject is a number": [first(jwt(sub=7)), AGAIN],
    "signed": [first(jwt({"alg": "RS256"}, "e30")), AGAIN],
    "none, with a signature": [first(jwt(signature="e30")), AGAIN],
    "no JSON": [first("YWJj.YWJj."), AGAIN],
    "no base64": [first("a.b.c"), AGAIN],
    "two parts": [first("e30.e30"), AGAIN],
    "good after bad": [first(jwt(exp=NOW - 600)), first(jwt())],
    "something else after bad": [first(jwt(exp=NOW - 600)), b"x"],
    "confirmed first": [AGAIN],
    "empty": [b""],
    "no auth": [b"n,,\x01host=x\x01\x01"],
    "not closed": [first(jwt())[:-1]],
    "channel binding": [b"y" + first(jwt())[1:]],
    "a reserved extension": [first(jwt(), more="auth=Bearer x\x01"), AGAIN],
}


def answers(ports: Ports, messages: list[bytes], lifetime: Callable[[float], Any] = float) -> list[Any]:
    """Bytes of errors are compared too. lifetime: of a session's length in seconds makes what is compared."""
    found: list[Any] = []
    with connected(ports[1]) as connection:
        found.append(told(connection, handshake("OAUTHBEARER")))
        for message in messages:
            try:
                answer = ask(connection, token(message))
            except OSError:
                return [*found, "closed"]
            length = lifetime(answer.session_lifetime.total_seconds())
            found.append((answer.error_code.name, answer.error_message, bytes(answer.auth_bytes), length))
        found.append(told(connection, METADATA))
    return found


def to_ten_seconds(seconds: float) -> Any:
    """Return a value equal to lifetimes within ten seconds: a session ends with its token, and one broker is later."""
    return pytest.approx(seconds, abs=10)


@pytest.mark.parametrize("name", MESSAGES)
def test_responses_to_sasl_messages_equal_those_of_kafka(name: str, kafka_ports: Ports, broker_ports: Ports) -> None:
    assert answers(broker_ports, MESSAGES[name]) == answers(kafka_ports, MESSAGES[name], to_ten_seconds)
