"""Authentication frame by frame and SCRAM users: a real Kafka and our broker with the same configuration and requests.

Everything that an answer holds is compared, and whether the connection is closed.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from kio.schema.alter_user_scram_credentials.v0 import request as alter
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.describe_user_scram_credentials.v0 import request as describe
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.sasl_authenticate.v0.request import SaslAuthenticateRequest as AuthenticateV0
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v0.request import SaslHandshakeRequest as HandshakeV0
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from kafkalog_broker.security.scram import salt_password
from kafkalog_broker.testing_support.client_requests import ask
from tests.broker.security.test_scram import final_of
from tests.interop.real_kafka import available, learnt, try_tool
from tests.interop.sasl_kafka import Ports, sasl_broker, sasl_kafka

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
PREFIX = "listener.name.sasl_plaintext."
SECURITY = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="alice-secret" user_bob="bob-secret";',
    f"{PREFIX}scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    f"{PREFIX}scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    f"{PREFIX}scram-sha-512.connections.max.reauth.ms": "3600000",
}
ALICE = b"\0alice\0alice-secret"


@pytest.fixture(scope="module")
def kafka_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with sasl_kafka(tmp_path_factory.mktemp("kafka"), SECURITY) as (_, ports):
        yield ports


@pytest.fixture(scope="module")
def broker_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with sasl_broker(tmp_path_factory.mktemp("ours") / "data", SECURITY) as ports:
        yield ports


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 30)


def told(connection: socket.socket, request: Any) -> Any:
    """Return the parts of a response that are the same for every broker."""
    try:
        answer = ask(connection, request)
    except OSError:
        return "closed"
    fields: dict[str, Any] = {
        name: getattr(answer, name, None) for name in ("error_code", "error_message", "mechanisms")
    }
    fields["mechanisms"] = sorted(fields["mechanisms"] or ())  # Kafka's order is that of a hash table
    fields["lifetime"], fields["token"] = getattr(answer, "session_lifetime", None), getattr(answer, "auth_bytes", None)
    if fields["token"]:
        fields["token"] = "one that is new each time"
    return fields


VERSIONS = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
METADATA = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)


def handshake(mechanism: str = "PLAIN") -> SaslHandshakeRequest:
    return SaslHandshakeRequest(mechanism=mechanism)


def token(data: bytes = ALICE) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=data)


EXCHANGES: dict[str, list[Any]] = {
    "good": [VERSIONS, handshake(), token(), METADATA],
    "good, version 0": [handshake(), AuthenticateV0(auth_bytes=ALICE), METADATA],
    "own authorization id": [handshake(), token(b"alice" + ALICE), METADATA],
    "wrong password": [handshake(), token(b"\0alice\0x"), METADATA],
    "unknown user": [handshake(), token(b"\0carol\0x"), METADATA],
    "no user": [handshake(), token(b"\0\0x")],
    "no password": [handshake(), token(b"\0alice\0")],
    "another authorization id": [handshake(), token(b"bob" + ALICE)],
    "one token": [handshake(), token(b"alice")],
    "four tokens": [handshake(), token(ALICE + b"\0")],
    "another mechanism": [handshake("GSSAPI"), token()],
    "no such mechanism": [handshake("OTHER")],
    "mechanisms in lower case": [handshake("plain")],
    "nothing": [METADATA],
    "versions twice": [VERSIONS, VERSIONS],
    "token first": [token()],
    "handshake twice": [handshake(), handshake()],
    "authenticated twice": [handshake(), token(), handshake(), token(), METADATA],
    "scram, unknown user": [handshake("SCRAM-SHA-256"), token(b"n,,n=carol,r=abc")],
    "scram, malformed": [handshake("SCRAM-SHA-256"), token(b"abc")],
}


def listener_without_sasl(ports: Ports) -> list[Any]:
    with connected(ports[0]) as connection:
        return [told(connection, request) for request in (handshake(), token(), HandshakeV0(mechanism="PLAIN"))]


@pytest.mark.parametrize("name", EXCHANGES)
def test_responses_of_an_exchange_equal_those_of_kafka(name: str, kafka_ports: Ports, broker_ports: Ports) -> None:
    answers = []
    for ports in (kafka_ports, broker_ports):
        with connected(ports[1]) as connection:
            answers.append([told(connection, request) for request in EXCHANGES[name]])
    assert answers[1] == answers[0]


def test_listener_without_sasl_responds_as_kafka(kafka_ports: Ports, broker_ports: Ports) -> None:
    assert listener_without_sasl(broker_ports) == listener_without_sasl(kafka_ports)


def raw(ports: Ports, data: bytes) -> list[Any]:
    with connected(ports[1]) as connection:
        first = told(connection, HandshakeV0(mechanism="PLAIN"))
        connection.sendall(struct.pack(">i", len(data)) + data)
        try:
            answer = connection.recv(100)
        except ConnectionError:
            answer = b""
        return [first, answer, told(connection, METADATA)]


@pytest.mark.parametrize("data", [ALICE, b"\0alice\0x"])
def test_tokens_without_headers_get_the_responses_of_kafka(
    data: bytes, kafka_ports: Ports, broker_ports: Ports
) -> None:
    assert raw(broker_ports, data) == raw(kafka_ports, data)


def upsertion(
    name: str = "carol", mechanism: int = 1, iterations: int = 4096, password: str = "one", key: bytes | None = None
) -> Any:
    salt = b"0123456789abcdef"
    known = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}.get(mechanism, "SCRAM-SHA-256")
    made = salt_password(known, password, salt, iterations) if key is None else key
    return alter.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=made  # type: ignore[arg-type]
    )  # fmt: skip


def deletion(name: str = "carol", mechanism: int = 1) -> Any:
    return alter.ScramCredentialDeletion(name=name, mechanism=mechanism)  # type: ignore[arg-type]


CHANGES: list[tuple[list[Any], list[Any]]] = [
    ([deletion()], []),
    ([], [upsertion()]),
    ([], [upsertion(mechanism=2, password="two", iterations=8192), upsertion("dave", iterations=16384)]),
    ([], [upsertion("both", 1), upsertion("both", 2)]),
    ([], [upsertion("three", 1), upsertion("three", 2), upsertion("three", 1)]),
    ([deletion()], [upsertion()]),
    ([deletion(), deletion()], []),
    ([deletion(mechanism=1), deletion(mechanism=2)], []),
    ([deletion("nobody", 7), deletion("")], [upsertion("few", iterations=4095), upsertion("many", iterations=16385)]),
    ([], [upsertion("empty", key=b"")]),
    ([deletion("dave")], [upsertion("erin", password="x")]),
]


def described(connection: socket.socket) -> list[Any]:
    found: list[Any] = []
    for names in (None, ("carol", "nobody", "nobody"), ("carol", "both")):
        users = None if names is None else tuple(describe.UserName(name=name) for name in names)
        answer = ask(connection, describe.DescribeUserScramCredentialsRequest(users=users))
        found.append((answer.error_code.name, answer.error_message))
        found.append(
            sorted(
                (one.user, one.error_code.name, one.error_message,
                 sorted((info.mechanism, info.iterations) for info in one.credential_infos))
                for one in answer.results
            )
        )  # fmt: skip
    return found


def changed(ports: Ports, expected: list[Any] | None = None) -> list[Any]:
    """The answer to each change, with the users described after it. expected: the same of another broker."""
    found: list[Any] = []
    with connected(ports[0]) as connection:
        for number, (deletions, upsertions) in enumerate(CHANGES):
            request = alter.AlterUserScramCredentialsRequest(deletions=tuple(deletions), upsertions=tuple(upsertions))
            results = ask(connection, request).results
            ask_users = partial(described, connection)
            users = ask_users() if expected is None else learnt(ask_users, expected[number][1])
            found.append((sorted((one.user, one.error_code.name, one.error_message) for one in results), users))
    return found


def logins(ports: Ports) -> list[Any]:
    found = []
    for user, mechanism, password in (
        ("carol", "SCRAM-SHA-256", "one"),
        ("carol", "SCRAM-SHA-512", "two"),
        ("erin", "SCRAM-SHA-256", "x"),
        ("erin", "SCRAM-SHA-256", "y"),
        ("dave", "SCRAM-SHA-256", "one"),
    ):
        with connected(ports[1]) as connection:
            first = f"n,,n={user},r=abc"
            found.append(told(connection, handshake(mechanism)))
            try:
                challenge = ask(connection, token(first.encode()))
            except OSError:
                continue
            found.append((challenge.error_code.name, challenge.error_message))
            if challenge.error_code.name == "none":
                final = final_of(first, challenge.auth_bytes, password, HASHES[mechanism])
                found += [told(connection, token(final)), told(connection, METADATA)]
    return found


def test_scram_users_are_altered_described_and_authenticated_as_by_kafka(
    kafka_ports: Ports, broker_ports: Ports
) -> None:
    mine = changed(broker_ports)
    for number, (answers, kafkas) in enumerate(zip(mine, changed(kafka_ports, mine), strict=True)):
        assert answers == kafkas, CHANGES[number]
    let_in = logins(broker_ports)
    assert learnt(partial(logins, kafka_ports), let_in) == let_in


COMMANDS = [
    "--alter --add-config SCRAM-SHA-512=[iterations=4096,password=one],SCRAM-SHA-256=[password=two] --entity-name tool",
    "--describe --entity-name tool",
    "--alter --delete-config SCRAM-SHA-256 --entity-name tool",
    "--describe --entity-name tool",
    "--alter --add-config SCRAM-SHA-512=[iterations=5,password=one] --entity-name tool",
    "--alter --delete-config SCRAM-SHA-256 --entity-name tool",
]


def said(ports: Ports, command: str) -> tuple[int, str]:
    server = f"127.0.0.1:{ports[0]}"
    ran = try_tool("ConfigCommand", "--bootstrap-server", server, "--entity-type", "users", *command.split())
    return ran.returncode, ran.stdout


def test_kafka_configs_tool_prints_the_same_as_with_kafka(kafka_ports: Ports, broker_ports: Ports) -> None:
    for command in COMMANDS:
        mine = said(broker_ports, command)
        assert learnt(partial(said, kafka_ports, command), mine) == mine, command
