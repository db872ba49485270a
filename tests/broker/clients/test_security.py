"""Three clients with each security protocol and SASL mechanism that they support (the table is in docs/security.md).

Each cell produces, consumes in a group and is refused with a wrong password; confluent-kafka also has transactions and
sessions that are renewed while it produces.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from kafkalog_broker.testing import RunningBroker, running_broker
from kafkalog_broker.testing_support.certificate_authority import IssuedCertificate

kafka = pytest.importorskip("kafka")
pytest.importorskip("kafka.net.sasl.oauth")
aiokafka = pytest.importorskip("aiokafka")

pytestmark = pytest.mark.end_to_end

WAIT = 120
"""Seconds for what takes one on an idle machine."""
USERS = {"alice": "alice's secret", "bob": 'with "quotes", commas = \\ and more'.replace('"', "'")}
SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
KINDS: dict[str, dict[str, Any]] = {
    "SSL": {"security": "SSL"},
    "mutual SSL": {"security": "SSL", "users": USERS},
    "SASL_PLAINTEXT": {"security": "SASL_PLAINTEXT", "users": USERS},
    "SASL_SSL": {"security": "SASL_SSL", "users": USERS},
}
CELLS = [(kind, mechanism) for kind in KINDS for mechanism in (SASL if kind.startswith("SASL") else ("",))]
VALUES = [b"%d" % number for number in range(100)]


@dataclass(frozen=True)
class Cell:
    broker: RunningBroker
    kind: str
    mechanism: str

    @property
    def topic(self) -> str:
        return f"{self.kind}-{self.mechanism}".replace(" ", "_")

    def librdkafka(self, user: str | None = None, **changed: str) -> dict[str, Any]:
        own = self.broker.client(user, self.mechanism)
        return {"bootstrap.servers": self.broker.bootstrap, "log_level": 0, **own, **changed}

    def python(self, user: str | None = None, password: str | None = None, *, aio: bool = False) -> dict[str, Any]:
        """The settings of kafka-python and aiokafka. password: another one, and a token that is none."""
        Provider = AioProvider if aio else PythonProvider
        own = self.broker.client(user, self.mechanism)
        found: dict[str, Any] = {
            "bootstrap_servers": self.broker.bootstrap,
            "security_protocol": own["security.protocol"],
            "ssl_context": self.broker.ssl_context(user),
        }
        if self.mechanism == "OAUTHBEARER":
            token = "x.y.z" if password else self.broker.token(user)
            found |= {"sasl_mechanism": self.mechanism, "sasl_oauth_token_provider": Provider(token)}
        elif self.mechanism:
            found |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": own["sasl.username"],
                "sasl_plain_password": own["sasl.password"] if password is None else password,
            }
        return found


class PythonProvider(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc, name-defined]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


class AioProvider(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc, name-defined]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[str, RunningBroker]]:
    """Brokers by security, each started at its first use."""
    running: dict[str, Any] = {}

    class Brokers(dict[str, RunningBroker]):
        def __missing__(self, kind: str) -> RunningBroker:
            topics = {Cell(None, kind, mechanism).topic: 1 for its, mechanism in CELLS if its == kind}  # type: ignore[arg-type]
            running[kind] = running_broker({"group.initial.rebalance.delay.ms": 0}, topics=topics, **KINDS[kind])
            self[kind] = running[kind].__enter__()
            return self[kind]

    try:
        yield Brokers()
    finally:
        for one in running.values():
            one.__exit__(None, None, None)


@pytest.fixture(params=CELLS, ids=lambda cell: "-".join(filter(None, cell)))
def cell(request: pytest.FixtureRequest, brokers: dict[str, RunningBroker]) -> Cell:
    kind, mechanism = request.param
    return Cell(brokers[kind], kind, mechanism)


def consumed(cell: Cell, group: str, wanted: int, **changed: str) -> list[bytes]:
    settings = {"group.id": group, "auto.offset.reset": "earliest", **changed}
    consumer, end = Consumer(cell.librdkafka(**settings)), time.monotonic() + WAIT
    found: list[bytes] = []
    consumer.subscribe([cell.topic])
    try:
        while len(found) < wanted and time.monotonic() < end:
            for message in consumer.consume(1000, 1):
                if message.error() is None:
                    found.append(message.value())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    return found
        return found
    finally:
        consumer.close()


def test_confluent_kafka_produces_consumes_and_commits_transactions(cell: Cell) -> None:
    before = consumed(cell, "before", 0)
    assert before == []
    producer = Producer(cell.librdkafka(**{"transactional.id": "one"}))
    producer.init_transactions(WAIT)
    for values, ends in ((VALUES, producer.commit_transaction), ([b"never"], producer.abort_transaction)):
        producer.begin_transaction()
        for value in values:
            producer.produce(cell.topic, value)
        producer.flush(WAIT)
        ends(WAIT)
    found = consumed(cell, "confluent", len(VALUES), **{"isolation.level": "read_committed"})
    assert found == VALUES


@pytest.mark.parametrize("cell", [one for one in CELLS if one[0] != "SSL"], indirect=True, ids="-".join)
def test_confluent_kafka_with_wrong_credentials_is_refused(cell: Cell) -> None:
    changed: list[dict[str, Any]] = [{"ssl.certificate.pem": "", "ssl.key.pem": ""}]
    if cell.mechanism:
        changed = [{"sasl.password": "x"}, {"sasl.username": "carol"}]
    if cell.mechanism == "OAUTHBEARER":
        changed = [{"oauth_cb": lambda config: ("x.y.z", time.time() + 60)}]
    for settings in changed:
        given = {name: text for name, text in cell.librdkafka(**settings).items() if text != ""}
        errors: list[KafkaError] = []
        producer = Producer({**given, "error_cb": errors.append})
        end = time.monotonic() + WAIT
        while not errors and time.monotonic() < end:
            producer.poll(0.1)
        assert errors[0].code() in (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._TRANSPORT)
        assert "secret" not in cell.broker.log()


def test_kafka_python_produces_and_consumes(cell: Cell) -> None:
    producer = kafka.KafkaProducer(**cell.python(), acks="all")
    sent = [producer.send(cell.topic, b"python " + value) for value in VALUES]
    producer.flush(WAIT)
    assert len([future.get(WAIT) for future in sent]) == len(VALUES)
    producer.close()
    consumer = kafka.KafkaConsumer(
        cell.topic,
        **cell.python(),
        group_id="kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=1000 * WAIT,
    )
    found = []
    for message in consumer:
        if message.value.startswith(b"python "):
            found.append(message.value.removeprefix(b"python "))
        if len(found) == len(VALUES):
            break
    consumer.close()
    assert found == VALUES


def refused(cell: Cell, *, aio: bool = False) -> dict[str, Any]:
    """Return settings with a wrong password or token, or without the required client certificate."""
    if cell.mechanism:
        return cell.python(password="x", aio=aio)
    assert cell.broker.security is not None
    context = ssl.create_default_context(cadata=cell.broker.security.certificate)
    return {**cell.python(), "ssl_context": context}


@pytest.mark.parametrize("cell", [one for one in CELLS if one[0] != "SSL"], indirect=True, ids="-".join)
def test_kafka_python_with_wrong_credentials_is_refused(cell: Cell) -> None:
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(**refused(cell), bootstrap_timeout_ms=2000).close()


@pytest.mark.parametrize("cell", [one for one in CELLS if one[0] != "SSL"], indirect=True, ids="-".join)
@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")  # aiokafka leaves the one that was refused
def test_aiokafka_with_wrong_credentials_is_refused(cell: Cell) -> None:
    async def test() -> None:
        producer = aiokafka.AIOKafkaProducer(**refused(cell, aio=True))
        try:
            with pytest.raises(aiokafka.errors.KafkaError):
                await asyncio.wait_for(producer.start(), WAIT)
        finally:
            await producer.stop()

    asyncio.run(test())
    gc.collect()  # what it left is not to be found during another test


def test_aiokafka_produces_and_consumes(cell: Cell) -> None:
    async def test() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(
            **cell.python("bob" if cell.kind != "SSL" else None, aio=True)
        ) as producer:
            for value in VALUES:
                await producer.send_and_wait(cell.topic, b"aio " + value)
        found: list[bytes] = []
        async with aiokafka.AIOKafkaConsumer(
            cell.topic, **cell.python(aio=True), group_id="aiokafka", auto_offset_reset="earliest"
        ) as consumer:
            while len(found) < len(VALUES):
                message = await asyncio.wait_for(consumer.getone(), WAIT)
                if message.value.startswith(b"aio "):
                    found.append(message.value.removeprefix(b"aio "))
        return found

    assert asyncio.run(test()) == VALUES


def committed(cell: Cell, group: str, start: bytes) -> list[bytes]:
    found = consumed(cell, group, 10_000, **{"isolation.level": "read_committed", "enable.partition.eof": "true"})
    return [value for value in found if value.startswith(start)]


def test_kafka_python_commits_transactions(cell: Cell) -> None:
    producer = kafka.KafkaProducer(**cell.python(), transactional_id="kafka-python")
    producer.init_transactions()
    for value, ends in ((b"ptx kept", producer.commit_transaction), (b"ptx dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.send(cell.topic, value).get(WAIT)
        ends()
    producer.close()
    assert committed(cell, "after kafka-python", b"ptx") == [b"ptx kept"]


def test_aiokafka_commits_transactions(cell: Cell) -> None:
    async def test() -> None:
        async with aiokafka.AIOKafkaProducer(**cell.python(aio=True), transactional_id="aiokafka") as producer:
            async with producer.transaction():
                await producer.send_and_wait(cell.topic, b"atx kept")
            await producer.begin_transaction()
            await producer.send_and_wait(cell.topic, b"atx dropped")
            await producer.abort_transaction()

    asyncio.run(test())
    assert committed(cell, "after aiokafka", b"atx") == [b"atx kept"]


def with_unknown_user(cell: Cell, *, aio: bool = False) -> dict[str, Any]:
    """Return the cell with a user that does not exist or, for OAUTHBEARER, with a token of another issuer."""
    found = cell.python(aio=aio)
    if cell.mechanism == "OAUTHBEARER":
        provider = AioProvider if aio else PythonProvider
        return {**found, "sasl_oauth_token_provider": provider(cell.broker.token("carol", iss="https://other.example"))}
    return {**found, "sasl_plain_username": "carol"}


def with_an_expired_certificate(broker: RunningBroker) -> tuple[IssuedCertificate, ssl.SSLContext]:
    assert broker.security is not None
    issued = broker.security._authority.issue("alice", expires_at=datetime.now(UTC) - timedelta(minutes=1))
    context = ssl.create_default_context(cadata=broker.security.certificate)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(issued.key + issued.chain)
        file.flush()
        context.load_cert_chain(file.name)
    return issued, context


@pytest.mark.parametrize("cell", [one for one in CELLS if one[0] != "SSL"], indirect=True, ids="-".join)
@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")  # aiokafka leaves the one that was refused
def test_unknown_users_and_expired_certificates_are_refused(cell: Cell) -> None:
    settings, aio = with_unknown_user(cell), with_unknown_user(cell, aio=True)
    if not cell.mechanism:
        issued, context = with_an_expired_certificate(cell.broker)
        settings = aio = {**cell.python(), "ssl_context": context}
        errors: list[KafkaError] = []
        own = {**cell.librdkafka(), "ssl.certificate.pem": issued.chain, "ssl.key.pem": issued.key}
        producer, end = Producer({**own, "error_cb": errors.append}), time.monotonic() + WAIT
        while not errors and time.monotonic() < end:
            producer.poll(0.1)
        assert errors[0].code() in (KafkaError._SSL, KafkaError._TRANSPORT)
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(**settings, bootstrap_timeout_ms=2000).close()

    async def test() -> None:
        refused = aiokafka.AIOKafkaProducer(**aio)
        try:
            with pytest.raises(aiokafka.errors.KafkaError):
                await asyncio.wait_for(refused.start(), WAIT)
        finally:
            await refused.stop()

    asyncio.run(test())
    gc.collect()


SESSIONS_S = 1.5, 6.0, 24.0
"""How long a session lasts, in seconds. Clients renew theirs in its last tenth (kafka-python: in the last 5 to 15 %),
and a busy machine may not let them in time: then a longer one has to do. Who does not renew fails with each."""


def with_sessions(traffic: Callable[[RunningBroker, float], list[Any]]) -> None:
    """`traffic` through a broker whose sessions end, for so many seconds: more than two sessions. It returns errors."""
    for seconds in SESSIONS_S:
        properties = {"connections.max.reauth.ms": round(seconds * 1000)}
        with running_broker(properties, topics={"t": 1}, security="SASL_PLAINTEXT", users=USERS) as broker:
            failed = traffic(broker, 2.6 * seconds)
            if "its session has expired" not in broker.log():
                assert failed == []
                return
    raise AssertionError(f"a session of {seconds} s was not renewed: {failed}")


@pytest.mark.parametrize("mechanism", SASL)
def test_confluent_kafka_reauthenticates_while_it_produces(mechanism: str) -> None:
    """The producer goes on over the end of its session without an error (KIP-368)."""

    def traffic(broker: RunningBroker, seconds: float) -> list[Any]:
        failed: list[Any] = []
        settings = {"bootstrap.servers": broker.bootstrap, **broker.client("bob", mechanism), "error_cb": failed.append}
        producer = Producer(settings)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            producer.produce("t", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
            producer.poll(0.02)
        assert producer.flush(WAIT) == 0
        return failed

    with_sessions(traffic)


def test_kafka_python_reauthenticates_while_it_produces() -> None:
    """As above. (aiokafka does not renew them: it connects again.)"""

    def traffic(broker: RunningBroker, seconds: float) -> list[Any]:
        failed: list[Any] = []
        producer = kafka.KafkaProducer(**Cell(broker, "SASL_PLAINTEXT", "SCRAM-SHA-256").python())
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                producer.send("t", b"x").get(WAIT)
            except kafka.errors.KafkaError as error:
                failed.append(error)
            time.sleep(0.02)
        producer.close()
        return failed

    with_sessions(traffic)
