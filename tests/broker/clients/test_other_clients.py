"""kafka-python and aiokafka against the broker."""

from __future__ import annotations

import asyncio

import pytest

from broker.testing import RunningBroker

kafka = pytest.importorskip("kafka")
aiokafka = pytest.importorskip("aiokafka")


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_kafka_python_produces_and_consumes(broker: RunningBroker, codec: str | None) -> None:
    topic = f"kafka-python-{codec}"
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type=codec, linger_ms=5)
    sent = [producer.send(topic, key=b"%d" % n, value=b"value" * n, partition=0) for n in range(100)]
    producer.flush(20)
    assert [future.get(20).offset for future in sent] == list(range(100))
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=f"kafka-python-{codec}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    records = [record for _, record in zip(range(100), consumer, strict=False)]
    assert [(record.offset, record.key, record.value) for record in records] == [
        (n, b"%d" % n, b"value" * n) for n in range(100)
    ]
    consumer.close()


def test_aiokafka_produces_and_consumes_in_a_group(broker: RunningBroker) -> None:
    async def go() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, enable_idempotence=True, compression_type="lz4"
        ) as producer:
            for n in range(100):
                await producer.send("aiokafka", b"%d" % n, partition=0)
            await producer.flush()
        async with aiokafka.AIOKafkaConsumer(
            "aiokafka", bootstrap_servers=broker.bootstrap, group_id="aiokafka", auto_offset_reset="earliest"
        ) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(100)]

    assert asyncio.run(go()) == [b"%d" % n for n in range(100)]
