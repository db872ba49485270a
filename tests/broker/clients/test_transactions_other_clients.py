"""Transactions with kafka-python and aiokafka."""

from __future__ import annotations

import asyncio

import pytest

from kafkalog_broker.testing import RunningBroker

kafka = pytest.importorskip("kafka")
aiokafka = pytest.importorskip("aiokafka")

pytestmark = pytest.mark.end_to_end

SECONDS = 120
"""For what takes one on an idle machine."""


def committed_with_kafka_python(broker: RunningBroker, topic: str, expected: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=1000 * SECONDS,
    )
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    found = [record.value for _, record in zip(range(expected), consumer, strict=False)]
    consumer.close()
    return found


def test_kafka_python_commits_and_aborts(broker: RunningBroker) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="kafka-python")
    producer.init_transactions()
    for number in range(10):
        producer.begin_transaction()
        producer.send("kafka-python-transactions", b"%d" % number, partition=0).get(SECONDS)
        producer.commit_transaction() if number % 2 else producer.abort_transaction()
    producer.close()
    expected = [b"%d" % number for number in range(10) if number % 2]
    assert committed_with_kafka_python(broker, "kafka-python-transactions", len(expected)) == expected


def test_kafka_python_commits_offsets_in_a_transaction(broker: RunningBroker) -> None:
    broker.create_topic("kafka-python-source", 1)
    partition = kafka.TopicPartition("kafka-python-source", 0)
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="kafka-python-offsets")
    producer.init_transactions()
    for offset, commits in ((5, True), (9, False)):
        producer.begin_transaction()
        offsets = {partition: kafka.structs.OffsetAndMetadata(offset, "", -1)}
        producer.send_offsets_to_transaction(offsets, "kafka-python-copiers")
        producer.commit_transaction() if commits else producer.abort_transaction()
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="kafka-python-copiers")
    assert consumer.committed(partition) == 5
    consumer.close()


def test_kafka_python_producer_is_fenced_by_a_second_one(broker: RunningBroker) -> None:
    zombie = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="kafka-python-fenced")
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.send("kafka-python-fencing", b"zombie", partition=0).get(SECONDS)
    fresh = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="kafka-python-fenced")
    fresh.init_transactions()
    fresh.begin_transaction()
    fresh.send("kafka-python-fencing", b"fresh", partition=0).get(SECONDS)
    fresh.commit_transaction()
    with pytest.raises(kafka.errors.KafkaError):
        zombie.commit_transaction()
    zombie.close(1)
    fresh.close()
    assert committed_with_kafka_python(broker, "kafka-python-fencing", 1) == [b"fresh"]


def test_aiokafka_commits_aborts_and_copies(broker: RunningBroker) -> None:
    source = aiokafka.TopicPartition("aiokafka-transactions", 0)
    target = aiokafka.TopicPartition("aiokafka-copies", 0)

    async def go() -> tuple[list[bytes], list[bytes], int]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="aiokafka") as one:
            for number in range(10):
                try:
                    async with one.transaction():
                        await one.send_and_wait(source.topic, b"%d" % number, partition=0)
                        if number % 2 == 0:
                            raise ValueError("abort this one")
                except ValueError:
                    pass
            options = {"bootstrap_servers": broker.bootstrap, "enable_auto_commit": False}
            async with aiokafka.AIOKafkaConsumer(
                isolation_level="read_committed", auto_offset_reset="earliest", group_id="aiokafka-copiers", **options
            ) as reader:
                reader.assign([source])
                values = [(await asyncio.wait_for(reader.getone(), SECONDS)).value for _ in range(5)]
                async with one.transaction():
                    for value in values:
                        await one.send(target.topic, value, partition=0)
                    offset = await reader.position(source)
                    await one.send_offsets_to_transaction({source: offset}, "aiokafka-copiers")
                committed = await reader.committed(source)
            async with aiokafka.AIOKafkaConsumer(isolation_level="read_committed", **options) as reader:
                reader.assign([target])
                reader.seek(target, 0)
                copies = [(await asyncio.wait_for(reader.getone(), SECONDS)).value for _ in range(5)]
            return values, copies, committed

    values, copies, committed = asyncio.run(go())
    assert values == copies == [b"%d" % number for number in range(10) if number % 2]
    assert committed >= 18  # behind the last record that was read; markers lie between
