"""kafka-python and aiokafka against the broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalog_broker.testing import RunningBroker

kafka = pytest.importorskip("kafka")
aiokafka = pytest.importorskip("aiokafka")

from aiokafka import TopicPartition as AioTopicPartition  # noqa: E402
from kafka import TopicPartition  # noqa: E402
from kafka.admin import ConfigResource, NewPartitions, NewTopic  # noqa: E402

pytestmark = pytest.mark.end_to_end

SECONDS = 120
"""For what takes one on an idle machine."""
START_MS = 1_700_000_000_000
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
LARGE = b"x" * 1_000_000
"""Nearly as large as the broker takes one (max.message.bytes), compressed or not."""


def sent_records() -> list[dict[str, Any]]:
    """Keys and values that are null (but not both: these clients refuse that), empty and large, and headers."""
    records: list[dict[str, Any]] = [
        {
            "key": None if n % 3 == 0 else b"key %d" % n,
            "value": None if n % 6 == 4 else b"value %d" % n,
            "headers": [("name", b"%d" % n), ("name", b"")] if n % 2 else [],
            "timestamp_ms": START_MS + 1000 * n,
        }
        for n in range(100)
    ]
    records[50].update(key=b"", value=LARGE)
    return records


def as_sent(records: Any) -> list[dict[str, Any]]:
    """Return a consumed record in the form of `sent_records`."""
    return [
        {"key": one.key, "value": one.value, "headers": list(one.headers), "timestamp_ms": one.timestamp}
        for one in records
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_consumes_in_a_group_and_from_a_timestamp(broker: RunningBroker, codec: str | None) -> None:
    topic = f"kafka-python-{codec}"
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type=codec, linger_ms=5)
    records = sent_records()
    sent = [producer.send(topic, **record, partition=0) for record in records]
    producer.flush(SECONDS)
    assert [future.get(SECONDS).offset for future in sent] == list(range(100))
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=f"kafka-python-{codec}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS * 1000,
    )
    assert as_sent(record for _, record in zip(range(100), consumer, strict=False)) == records
    partition = TopicPartition(topic, 0)
    found = consumer.offsets_for_times({partition: START_MS + 69_500})[partition]
    assert (found.offset, found.timestamp) == (70, START_MS + 70_000)
    consumer.seek(partition, found.offset)
    assert next(consumer).offset == 70
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 100}
    consumer.commit()
    assert consumer.committed(partition) == 71
    consumer.close()


def test_kafka_python_admin_client_alters_and_describes(broker: RunningBroker) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic("by-kafka-python", 2, 1, topic_configs={"retention.ms": "123456"})])
    admin.create_partitions({"by-kafka-python": NewPartitions(4)})
    [topic] = admin.describe_topics(["by-kafka-python"])
    assert [partition["partition_index"] for partition in topic["partitions"]] == [0, 1, 2, 3]
    resource = ConfigResource("TOPIC", "by-kafka-python", configs={"max.message.bytes": "2000"})
    admin.alter_configs([resource])
    told = admin.describe_configs([ConfigResource("TOPIC", "by-kafka-python")], config_filter="all")
    configs = told["topic"]["by-kafka-python"]
    assert configs["max.message.bytes"]["value"] == "2000"
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
    for _ in range(5):
        producer.send("by-kafka-python", b"value", partition=1)
    producer.flush(SECONDS)
    with pytest.raises(kafka.errors.KafkaError):
        producer.send("by-kafka-python", b"x" * 3000, partition=1).get(SECONDS)
    producer.close()
    partition = TopicPartition("by-kafka-python", 1)
    assert admin.delete_records({partition: 3})[partition]["low_watermark"] == 3
    admin.delete_topics(["by-kafka-python"])
    assert "by-kafka-python" not in admin.list_topics()
    admin.close()


@pytest.mark.parametrize(("idempotent", "codec"), [(False, None), *((True, codec) for codec in CODECS)])
def test_aiokafka_consumes_in_a_group_and_from_a_timestamp(
    broker: RunningBroker, codec: str | None, idempotent: bool
) -> None:
    topic = f"aiokafka-{codec}-{idempotent}".lower()
    records = sent_records()

    async def go() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, enable_idempotence=idempotent, compression_type=codec
        ) as producer:
            futures = [await producer.send(topic, **record, partition=0) for record in records]
            assert [(await future).offset for future in futures] == list(range(100))
        async with aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            got = [await asyncio.wait_for(consumer.getone(), SECONDS) for _ in range(100)]
            assert as_sent(got) == records
            partition = AioTopicPartition(topic, 0)
            found = (await consumer.offsets_for_times({partition: START_MS + 69_500}))[partition]
            assert (found.offset, found.timestamp) == (70, START_MS + 70_000)
            consumer.seek(partition, found.offset)
            assert (await asyncio.wait_for(consumer.getone(), SECONDS)).offset == 70
            await consumer.commit()
            assert await consumer.committed(partition) == 71

    asyncio.run(go())


def test_partitions_of_an_aiokafka_member_that_leaves_are_reassigned(broker: RunningBroker) -> None:
    async def go() -> None:
        def member() -> Any:
            return aiokafka.AIOKafkaConsumer(
                "aiokafka-group",
                bootstrap_servers=broker.bootstrap,
                group_id="aiokafka-group",
                heartbeat_interval_ms=200,
                metadata_max_age_ms=500,
            )

        async def until(condition: Any) -> None:
            async with asyncio.timeout(SECONDS):
                while not condition():
                    await asyncio.sleep(0.02)

        async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            await producer.send_and_wait("aiokafka-group", b"creates the topic")
        async with member() as staying:
            await until(lambda: len(staying.assignment()) == 2)
            async with member() as leaving:
                await until(lambda: [len(one.assignment()) for one in (staying, leaving)] == [1, 1])
                assert staying.assignment() != leaving.assignment()
            await until(lambda: len(staying.assignment()) == 2)

    asyncio.run(go())
