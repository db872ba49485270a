"""A broker with SASL listeners, tested with single frames."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kio.schema.alter_user_scram_credentials.v0 import request as alter
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.describe_user_scram_credentials.v0 import request as describe
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v0.request import SaslHandshakeRequest as HandshakeV0
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from kafkalog_broker.security.scram import salt_password
from kafkalog_broker.testing import RunningBroker
from kafkalog_broker.testing_support.client_requests import ask, frame_of
from tests.broker.security.test_scram import final_of

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PREFIX = "listener.name.sasl_plaintext."
PROPERTIES = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"{PREFIX}plain.sasl.jaas.config": f'{MODULE} required user_alice="alice-secret" user_bob="bob-secret";',
}
ALICE = b"\0alice\0alice-secret"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("sasl") / "data", PROPERTIES) as running:
        yield running


def connected(broker: RunningBroker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.ports["SASL_PLAINTEXT"]), 10)


def versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="tests", client_software_version="1")


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)


def handshake(mechanism: str = "PLAIN") -> SaslHandshakeRequest:
    return SaslHandshakeRequest(mechanism=mechanism)


def token(data: bytes = ALICE) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=data)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_authenticated_client_is_served(broker: RunningBroker):
    with connected(broker) as connection:
        assert len(ask(connection, versions()).api_keys) > 40
        answer = ask(connection, handshake())
        assert (answer.error_code.name, answer.mechanisms) == ("none", ("PLAIN", "SCRAM-SHA-256"))
        answer = ask(connection, token())
        assert (answer.error_code.name, answer.auth_bytes) == ("none", b"")
        assert answer.session_lifetime.total_seconds() == 0
        (node,) = ask(connection, metadata()).brokers
        assert node.port == broker.ports["SASL_PLAINTEXT"]
        for again in (handshake(), token()):
            assert ask(connection, again).error_code.name == "illegal_sasl_state"
        assert ask(connection, metadata()).brokers


def test_listener_without_sasl_responds_as_kafka(broker: RunningBroker):
    for request in (handshake(), token()):
        assert broker.ask(request).error_code.name == "illegal_sasl_state"


@pytest.mark.parametrize(
    "requests",
    [
        [metadata()],
        [versions(), metadata()],
        [versions(), versions()],
        [token()],
        [handshake(), metadata()],
        [handshake(), versions()],
    ],
)
def test_requests_before_authentication_are_refused(broker: RunningBroker, requests: list[object]):
    with connected(broker) as connection:
        for request in requests[:-1]:
            ask(connection, request)
        frame = frame_of(requests[-1])
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        assert is_closed(connection)


def test_requests_sent_ahead_are_not_handled_after_a_wrong_password(broker: RunningBroker):
    with connected(broker) as connection:
        ask(connection, handshake())
        frames = [frame_of(token(b"\0alice\0x")), frame_of(metadata())]
        began = time.monotonic()
        connection.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        data = b""
        while more := connection.recv(65536):
            data += more
        assert time.monotonic() - began >= 0.1  # connection.failed.authentication.delay.ms
        assert len(data) == 4 + struct.unpack(">i", data[:4])[0]
        assert b"Authentication failed: Invalid username or password" in data
    assert "alice-secret" not in broker.log()


def test_disabled_mechanism_is_refused(broker: RunningBroker):
    with connected(broker) as connection:
        answer = ask(connection, handshake("GSSAPI"))
        assert (answer.error_code.name, answer.mechanisms) == (
            "unsupported_sasl_mechanism",
            ("PLAIN", "SCRAM-SHA-256"),
        )
        assert is_closed(connection)


def test_second_handshake_is_answered_and_closes_the_connection(broker: RunningBroker):
    with connected(broker) as connection:
        ask(connection, handshake())
        assert ask(connection, handshake()).error_code.name == "illegal_sasl_state"
        assert is_closed(connection)


def test_tokens_without_headers_follow_handshake_version_0(broker: RunningBroker):
    for data, good in ((ALICE, True), (b"\0alice\0x", False)):
        with connected(broker) as connection:
            assert ask(connection, HandshakeV0(mechanism="PLAIN")).error_code.name == "none"
            connection.sendall(struct.pack(">i", len(data)) + data)
            if good:
                assert connection.recv(4) == bytes(4)
                assert ask(connection, metadata()).brokers
            else:
                assert is_closed(connection)


def test_large_frame_before_authentication_is_refused(broker: RunningBroker):
    with connected(broker) as connection:
        connection.sendall(struct.pack(">i", 524_289) + bytes(100))
        assert is_closed(connection)
    with connected(broker) as connection:
        ask(connection, handshake())
        ask(connection, token())
        large = frame_of(metadata()) + bytes(600_000)  # what comes after a body is passed over
        connection.sendall(struct.pack(">i", len(large)) + large)
        assert connection.recv(4)


def scram(connection: socket.socket, user: str, password: str) -> str:
    first = f"n,,n={user},r=abc"
    ask(connection, handshake("SCRAM-SHA-256"))
    challenge = ask(connection, token(first.encode()))
    if challenge.error_code.name != "none":
        return str(challenge.error_code.name)
    return str(ask(connection, token(final_of(first, challenge.auth_bytes, password, "sha256"))).error_code.name)


def logged_in(broker: RunningBroker, user: str, password: str) -> str:
    with connected(broker) as connection:
        return scram(connection, user, password)


def change(broker: RunningBroker, *, deletions: tuple[str, ...] = (), **passwords: str) -> list[str]:
    salt = b"0123456789abcdef"
    request = alter.AlterUserScramCredentialsRequest(
        deletions=tuple(alter.ScramCredentialDeletion(name=name, mechanism=1) for name in deletions),  # type: ignore[arg-type]
        upsertions=tuple(
            alter.ScramCredentialUpsertion(
                name=name, mechanism=1, iterations=4096, salt=salt,  # type: ignore[arg-type]
                salted_password=salt_password("SCRAM-SHA-256", password, salt, 4096),
            )
            for name, password in passwords.items()
        ),
    )  # fmt: skip
    return [result.error_code.name for result in broker.ask(request).results]


def described(broker: RunningBroker, *names: str) -> list[tuple[str, str, list[tuple[int, int]]]]:
    users = tuple(describe.UserName(name=name) for name in names)
    answer = broker.ask(describe.DescribeUserScramCredentialsRequest(users=users or None))
    return [
        (one.user, one.error_code.name, [(info.mechanism, info.iterations) for info in one.credential_infos])
        for one in answer.results
    ]


def test_scram_users_are_added_changed_deleted_and_survive_a_crash(tmp_path: Path):
    with RunningBroker(tmp_path / "data", PROPERTIES) as broker:
        assert logged_in(broker, "carol", "one") == "sasl_authentication_failed"
        assert change(broker, carol="one") == ["none"]
        assert logged_in(broker, "carol", "one") == "none"
        assert logged_in(broker, "carol", "two") == "sasl_authentication_failed"
        assert change(broker, carol="two") == ["none"]
        broker.kill()
        broker.start()
        assert logged_in(broker, "carol", "one") == "sasl_authentication_failed"
        assert logged_in(broker, "carol", "two") == "none"
        assert described(broker) == [("carol", "none", [(1, 4096)])]
        assert described(broker, "carol", "dave", "dave") == [
            ("carol", "none", [(1, 4096)]), ("dave", "duplicate_resource", []),
        ]  # fmt: skip
        assert described(broker, "dave") == [("dave", "resource_not_found", [])]
        assert change(broker, deletions=("carol",)) == ["none"]
        assert logged_in(broker, "carol", "two") == "sasl_authentication_failed"


def test_session_is_renewed_or_ends(tmp_path: Path):
    """KIP-368. The broker measures the session lifetime, so the test waits for its end."""
    properties = {**PROPERTIES, "connections.max.reauth.ms": "1200"}
    with RunningBroker(tmp_path / "data", properties) as broker, ExitStack() as connections:
        while True:
            began = time.monotonic()
            connection = connections.enter_context(connected(broker))
            ask(connection, handshake())
            assert ask(connection, token()).session_lifetime.total_seconds() == 1.2
            try:
                assert ask(connection, metadata()).brokers
                ask(connection, handshake())  # the first re-authentication may come at once
                assert ask(connection, token()).session_lifetime.total_seconds() == 1.2
                again = ask(connection, handshake())  # and the next a second later
            except OSError:
                assert time.monotonic() - began > 1
            else:
                if time.monotonic() - began < 1:
                    break
            # else the machine was too busy to be early: once more
        assert again.error_code.name == "illegal_sasl_state"
        with connected(broker) as other:
            ask(other, handshake())
            ask(other, token())
            ask(other, handshake())
            answer = ask(other, token(b"\0bob\0bob-secret"))
            assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
            assert is_closed(other)
        while True:
            try:
                ask(connection, metadata())
            except OSError:
                break
            time.sleep(0.05)
        assert "its session has expired" in broker.log()


def test_damaged_authentication_frames_do_not_affect_the_broker(broker: RunningBroker):
    """Requests of authentication with bytes changed, cut, and in any order."""
    numbers = random.Random(11)
    frames = [frame_of(one) for one in (versions(), handshake(), handshake("SCRAM-SHA-256"), token(), metadata())]
    frames += [frame_of(token(b"n,,n=alice,r=abc")), b"\0" * 7, b"\0\x24\0\2"]
    for _ in range(300):
        with connected(broker) as connection:
            for _ in range(numbers.randrange(1, 5)):
                frame = bytearray(numbers.choice(frames))
                for _ in range(numbers.choice((0, 0, 1, 3))):
                    frame[numbers.randrange(len(frame))] = numbers.randrange(256)
                cut = frame[: numbers.choice((len(frame), numbers.randrange(1, len(frame) + 1)))]
                try:
                    connection.sendall(struct.pack(">i", len(cut)) + cut)
                except OSError:
                    break
    assert broker.pid is not None
    assert "Traceback" not in broker.log()
    test_authenticated_client_is_served(broker)
