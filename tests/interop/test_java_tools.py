"""Kafka's own command-line tools against our broker: their output equals that with a real Kafka."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkalog_broker import api
from kafkalog_broker.protocol.api_messages import FIRST_OWN_API_KEY
from kafkalog_broker.testing import RunningBroker, running_broker
from tests.interop import java_tools
from tests.interop.real_kafka import available, run_tool

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

KAFKAS = json.loads(java_tools.RECORDED.read_text(encoding="utf-8"))
TELEMETRY = {71, 72}
"""Told of while metrics are on."""

STEPS = list(java_tools.steps())


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(java_tools.PROPERTIES) as running:
        yield running


def test_admin_tools_print_the_same_as_with_kafka(broker: RunningBroker) -> None:
    java_tools.prepare(broker.bootstrap)
    ours = {step.name: java_tools.ask(step, broker.bootstrap, broker.log_dir) for step in STEPS}
    assert list(ours) == list(KAFKAS), "the scenario has changed: record it again"
    assert ours == KAFKAS


def test_performance_tools_work_with_every_codec(broker: RunningBroker) -> None:
    records, consumer = 5_000, Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "nobody"})
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        told = run_tool(
            "ProducerPerformance", "--bootstrap-server", broker.bootstrap, "--topic", "performance", "--num-records",
            records, "--record-size", 100, "--throughput", -1, "--command-property", f"compression.type={codec}",
        )  # fmt: skip
        assert f"{records} records sent" in told
    low, high = consumer.get_watermark_offsets(TopicPartition("performance", 0), timeout=120)
    consumer.close()
    assert (low, high) == (0, 5 * records)
    told = run_tool(
        "ConsumerPerformance", "--bootstrap-server", broker.bootstrap, "--topic", "performance", "--num-records",
        5 * records, "--timeout", 60_000, "--hide-header",
    )  # fmt: skip
    consumed = told.strip().splitlines()[-1].split(", ")
    assert int(consumed[4]) >= 5 * records, told


def test_verifiable_consumer_gets_each_acknowledged_record_once(broker: RunningBroker) -> None:
    count = 2_000
    told = run_tool(
        "VerifiableProducer", "--bootstrap-server", broker.bootstrap, "--topic", "verified", "--max-messages", count,
        "--throughput", -1, "--value-prefix", 1, "--acks", -1,
    )  # fmt: skip
    events = [json.loads(line) for line in told.splitlines()]
    sent = {event["offset"]: event["value"] for event in events if event["name"] == "producer_send_success"}
    assert sorted(sent) == list(range(count))
    told = run_tool(
        "VerifiableConsumer", "--bootstrap-server", broker.bootstrap, "--topic", "verified", "--group-id", "verified",
        "--max-messages", count, "--reset-policy", "earliest", "--verbose",
    )  # fmt: skip
    events = [json.loads(line) for line in told.splitlines()]
    got = [(event["offset"], event["value"]) for event in events if event["name"] == "record_data"]
    assert got == sorted(sent.items())
    committed = [event for event in events if event["name"] == "offsets_committed"]
    assert committed
    assert all(event["success"] for event in committed)
    assert committed[-1]["offsets"] == [{"topic": "verified", "partition": 0, "offset": count}]


def test_end_to_end_latency_tool_succeeds(broker: RunningBroker) -> None:
    told = run_tool("EndToEndLatency", broker.bootstrap, "latency", 200, 1, 100)
    assert re.search(r"Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+", told), told


def test_every_served_api_is_usable_by_java_clients(broker: RunningBroker) -> None:
    told = run_tool("BrokerApiVersionsCommand", "--bootstrap-server", broker.bootstrap)
    usable = {int(key) for key in re.findall(r"^\s+\w+\((\d+)\): \d+(?: to \d+)? \[usable: \d+\]", told, re.MULTILINE)}
    # Produce is told from version 0 on, for librdkafka (KAFKA-18659); Java clients choose by what they know.
    assert usable == {key for key in api.load_all() if key < FIRST_OWN_API_KEY} - TELEMETRY
