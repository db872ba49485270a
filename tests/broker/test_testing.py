"""running_broker and the fixture kafkalog_broker, used with real clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from kafkalog_broker.pytest_plugin import kafkalog_broker  # noqa: F401 - also where the plugin is not installed
from kafkalog_broker.testing import BrokerDied, running_broker
from tests.broker.test_tls_server import metadata


def produce(bootstrap, topic, *values):
    failures = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(120) == 0
    assert failures == []


def consume(bootstrap, topic, count):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        return [message.value() for message in consumer.consume(count, 30)]
    finally:
        consumer.close()


@pytest.mark.kafkalog(properties={"num.partitions": 1}, topics={"orders": {"partitions": 2, "retention.ms": 60_000}})
def test_fixture_serves_clients_with_the_requested_topics(kafkalog_broker):  # noqa: F811
    topics = AdminClient({"bootstrap.servers": kafkalog_broker.bootstrap}).list_topics(timeout=120).topics
    assert len(topics["orders"].partitions) == 2
    produce(kafkalog_broker.bootstrap, "payments", b"a", b"b")
    assert consume(kafkalog_broker.bootstrap, "payments", 2) == [b"a", b"b"]


def test_records_survive_a_clean_stop_and_a_crash(tmp_path):
    with running_broker(log_dir=tmp_path / "data") as broker:
        produce(broker.bootstrap, "t", b"1")
        port = broker.port
        broker.stop()
        broker.start()
        assert broker.port == port
        produce(broker.bootstrap, "t", b"2")
        broker.kill()
        broker.start()
        assert consume(broker.bootstrap, "t", 2) == [b"1", b"2"]
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_temporary_directory_is_removed():
    with running_broker() as broker:
        directory = broker.log_dir
        assert (directory / "meta.properties").exists()
    assert not directory.exists()
    assert broker.pid is None


def test_broker_that_cannot_start_reports_the_reason():
    with pytest.raises(BrokerDied, match=r"did you mean num\.partitions"), running_broker({"num.partition": 1}):
        pass


def test_second_broker_on_the_same_directory_is_refused(tmp_path):
    data = tmp_path / "data"
    with running_broker(log_dir=data), pytest.raises(BrokerDied, match=str(data)), running_broker(log_dir=data):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_the_broker_cleanly(tmp_path, number):
    command = [
        sys.executable,
        "-m",
        "kafkalog_broker",
        "--log-dir",
        str(tmp_path),
        "--override",
        "listeners=PLAINTEXT://127.0.0.1:0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()  # type: ignore[union-attr]
        assert line.startswith("kafkalog-broker serves 127.0.0.1:")
        assert f", log.dirs {tmp_path}, 0 partitions, started in " in line
        os.kill(process.pid, number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "stopped cleanly" in said
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("security", "users"),
    [
        ("SSL", None),
        ("SSL", {"alice": "x"}),
        ("SASL_PLAINTEXT", {"alice": "secret"}),
        ("SASL_SSL", {"alice": 'a "b" \\ = ; c'}),
    ],
)
def test_broker_with_security_creates_its_topics_and_accepts_its_users(security, users):
    with running_broker(security=security, users=users, topics={"orders": 2}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, **broker.client()})
        done = []
        producer.produce("orders", b"one", on_delivery=lambda error, message: done.append(error))
        assert producer.flush(120) == 0
        assert done == [None]
        broker.stop()
        broker.start()
        assert broker.ask(metadata()).brokers


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"security": "TLS"}, "security is one of SSL, SASL_PLAINTEXT and SASL_SSL"),
        ({"security": "SASL_SSL"}, "SASL_SSL needs users"),
        ({"users": {"a": "b"}}, "users need security"),
        ({"security": "SASL_SSL", "users": {"kafkalog-testing": "x"}}, "is reserved for the test helpers"),
    ],
)
def test_invalid_security_raises_value_error(wanted, said):
    with pytest.raises(ValueError, match=said), running_broker(**wanted):
        pass
