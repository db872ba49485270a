"""Clients that are told to speak as those of 0.8.2, 0.9 and 0.10 did: kafka-python and librdkafka, without asking for
ApiVersions. What they send is Produce 0 to 2, what they read Fetch 0 to 2; groups commit with OffsetCommit 1 and 2."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as RdTopicPartition

from kafkalog_broker.testing import RunningBroker

kafka = pytest.importorskip("kafka")

from kafka import TopicPartition  # noqa: E402

pytestmark = pytest.mark.end_to_end

COUNT = 300
START_MS = 1_700_000_000_000
SECONDS = 120
"""For what takes one on an idle machine."""
RECORDS = [(b"key %d" % n if n % 3 else None, b"value %d" % n) for n in range(COUNT)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("version", [(0, 8, 2), (0, 9), (0, 10)], ids=str)
def test_kafka_python_configured_as_an_old_client_produces_and_consumes(
    broker: RunningBroker, version: tuple[int, ...], codec: str | None
) -> None:
    topic = f"python-{'.'.join(map(str, version))}-{codec}"
    has_times = version >= (0, 10)
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "api_version": version}
    producer = kafka.KafkaProducer(**settings, compression_type=codec, linger_ms=5)
    sent = [
        producer.send(topic, value, key, partition=0, timestamp_ms=START_MS + n if has_times else None)
        for n, (key, value) in enumerate(RECORDS)
    ]
    producer.flush(SECONDS)
    assert [one.get(SECONDS).offset for one in sent] == list(range(COUNT))
    producer.close()

    consumer = kafka.KafkaConsumer(
        **settings, group_id=f"group of {topic}", auto_offset_reset="earliest", enable_auto_commit=False,
        consumer_timeout_ms=1000 * SECONDS,
    )  # fmt: skip
    partition = TopicPartition(topic, 0)
    if version >= (0, 9):
        consumer.subscribe([topic])
    else:
        consumer.assign([partition])
    found = list(itertools.islice(consumer, COUNT))
    assert [(one.offset, one.key, one.value) for one in found] == [(n, *one) for n, one in enumerate(RECORDS)]
    if has_times:
        assert [one.timestamp for one in found] == list(range(START_MS, START_MS + COUNT))
    consumer.commit()
    assert consumer.committed(partition) == COUNT
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: COUNT}
    consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("version", ["0.8.2", "0.9.0"])
def test_librdkafka_configured_as_an_old_client_produces_and_consumes(
    broker: RunningBroker, version: str, codec: str
) -> None:
    topic = f"librdkafka-{version}-{codec}"
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "api.version.request": False,
        "broker.version.fallback": version,
        "log_level": 0,  # both properties are deprecated, and said to be
    }
    refused: list[Any] = []
    producer = Producer({**settings, "compression.codec": codec, "linger.ms": 20})
    for key, value in RECORDS:
        producer.produce(topic, value, key, 0, on_delivery=lambda error, _: refused.append(error) if error else None)
    assert producer.flush(SECONDS) == 0
    assert refused == []

    consumer = Consumer(
        {
            **settings,
            "group.id": f"group of {topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 5_000,
        }
    )
    if version == "0.8.2":
        consumer.assign([RdTopicPartition(topic, 0, 0)])
    else:
        consumer.subscribe([topic])
    found: list[Any] = []
    end = time.monotonic() + SECONDS
    while len(found) < COUNT and time.monotonic() < end:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            found.append(message)
    assert [(one.offset(), one.key(), one.value()) for one in found] == [(n, *one) for n, one in enumerate(RECORDS)]
    consumer.commit(asynchronous=False)
    (committed,) = consumer.committed([RdTopicPartition(topic, 0)], SECONDS)
    assert committed.offset == COUNT
    assert consumer.get_watermark_offsets(RdTopicPartition(topic, 0), SECONDS) == (0, COUNT)
    consumer.close()
