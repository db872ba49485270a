"""Kafka's Java client with each kind of security and mechanism: the row of Java in docs/security.md.

One JVM for all cells. Each produces, reads in a group, and has a transaction; sessions are renewed while it produces;
a wrong password, an unknown user and an expired certificate are refused with what Java has for that. Its tokens of
OAUTHBEARER lie in files, which Java's own login reads.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kafkalog_broker.testing import RunningBroker, running_broker
from kafkalog_broker.testing_support.certificate_authority import IssuedCertificate
from kafkalog_broker.testing_support.security import SecurityForTests
from tests.interop.real_kafka import available, classpath

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

USERS = {"alice": "alice's secret", "bob": "bob-secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MODULES = dict(zip(MECHANISMS, ("plain.Plain", "scram.Scram", "scram.Scram"), strict=True))
TRAFFIC = {"produce": "sent 20", "group": "read 20, committed 20", "transaction": "read 40"}
PROPERTIES = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLogin"
Cells = dict[str, tuple[dict[str, str], dict[str, str]]]
"""Name to the client's properties, and what is expected by step."""


def trusting(broker: RunningBroker) -> dict[str, str]:
    assert broker.security is not None
    if not broker.security.protocol.endswith("SSL"):
        return {}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": broker.security.certificate}


def showing(issued: IssuedCertificate) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": issued.chain, "ssl.keystore.key": issued.key
    }  # fmt: skip


def logging_in(mechanism: str, user: str, password: str) -> dict[str, str]:
    module = f"org.apache.kafka.common.security.{MODULES[mechanism]}LoginModule"
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


def with_token(file: Path, token: str) -> dict[str, str]:
    file.write_text(token)
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH}Module required ;",
        "sasl.login.callback.handler.class": f"{OAUTH}CallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }


def cells(brokers: Mapping[str, RunningBroker], tokens: Path) -> Cells:
    found: Cells = {"SSL": (trusting(brokers["SSL"]), TRAFFIC)}
    mutual = brokers["mutual SSL"]
    assert mutual.security is not None
    ended = mutual.security._authority.issue("alice", expires_at=datetime.now(UTC) - timedelta(hours=1))
    refused = {"refused": "SslAuthenticationException"}
    found["mutual SSL"] = ({**trusting(mutual), **showing(mutual.security.issued("alice"))}, TRAFFIC)
    found["mutual SSL, expired certificate"] = ({**trusting(mutual), **showing(ended)}, refused)
    found["mutual SSL, no certificate"] = (trusting(mutual), refused)
    for kind in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in MECHANISMS:
            for what, user, password, expected in (
                ("", "alice", USERS["alice"], {**TRAFFIC, "reauthentication": "authenticated again"}),
                (", wrong password", "alice", "wrong", {"refused": "SaslAuthenticationException"}),
                (", unknown user", "carol", "x", {"refused": "SaslAuthenticationException"}),
            ):
                properties = {**trusting(brokers[kind]), **logging_in(mechanism, user, password)}
                found[f"{kind} {mechanism}{what}"] = (properties, expected)
        broker, other = brokers[kind], SecurityForTests("SASL_SSL", USERS)
        for what, token, expected in (
            ("", broker.token("alice"), {**TRAFFIC, "reauthentication": "authenticated again"}),
            (", token of another issuer", other.token("alice"), {"refused": "SaslAuthenticationException"}),
            (", another audience", broker.token("alice", aud="x"), {"refused": "SaslAuthenticationException"}),
        ):
            given = with_token(tokens / f"{kind}{what}.jwt".replace(" ", "-").replace(",", ""), token)
            found[f"{kind} OAUTHBEARER{what}"] = ({**trusting(broker), **given}, expected)
    return found


def test_java_client_with_each_protocol_and_mechanism(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        brokers = {
            kind: stack.enter_context(
                running_broker(
                    {**PROPERTIES, **({"connections.max.reauth.ms": 2000} if kind.startswith("SASL") else {})},
                    security=kind.removeprefix("mutual "),
                    users=None if kind == "SSL" else USERS,
                )
            )
            for kind in ("SSL", "mutual SSL", "SASL_PLAINTEXT", "SASL_SSL")
        }
        tokens = tmp_path / "tokens"
        tokens.mkdir()
        matrix = cells(brokers, tokens)
        for number, (name, (properties, expected)) in enumerate(matrix.items()):
            kind = name.partition(",")[0] if "SASL" not in name else name.split()[0]
            broker, topic = brokers[kind], f"java-{number}"
            broker.create_topic(topic)
            assert broker.security is not None
            given = {
                "bootstrap.servers": broker.bootstrap, "security.protocol": broker.security.protocol, **properties,
                "matrix.topic": topic, "matrix.steps": ",".join(expected),
            }  # fmt: skip
            lines = [f"{key}={value.encode('unicode_escape').decode()}" for key, value in given.items()]
            (tmp_path / f"{name}.properties").write_text("\n".join(lines))
        program = str(Path(__file__).with_name("SecurityMatrix.java"))
        urls = ",".join(
            given["sasl.oauthbearer.token.endpoint.url"] for given, _ in matrix.values() if OAUTH in str(given)
        )
        allowed = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{what}={urls}" for what in ("urls", "files")]
        java = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", *allowed]
        command = [*java, "-cp", classpath(), program, str(tmp_path)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    rows = [line.split("\t") for line in ran.stdout.splitlines() if line.count("\t") == 2]  # others are a logger's
    said = {(cell, step): result for cell, step, result in rows}
    assert said == {(name, step): result for name, (_, steps) in matrix.items() for step, result in steps.items()}
