"""Read a whole topic through librdkafka, as rows that compare with those of tests.golden_data; commit offsets."""

from __future__ import annotations

import time
from typing import Any

_TIMEOUT = 120  # seconds without any message or end of partition: the broker is gone


def consume(bootstrap: str, topic: str, isolation_level: str = "read_uncommitted") -> list[dict[str, Any]]:
    """Every record of every partition, from the log start offset to the end that the isolation level shows.

    Rows by partition and offset, with the keys of tests.golden_data's rows but `committed`. Raises RuntimeError for
    a consumer error, a wrong CRC included, and when nothing comes any more.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "kafkalog-interop",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # how long the answer that tells of the end is held back
            "isolation.level": isolation_level,
            "check.crcs": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        open_partitions = set(partitions)
        rows = []
        heard = time.monotonic()
        while open_partitions:
            messages = consumer.consume(
                10_000, timeout=0.1
            )  # waits for all of them or the whole timeout: keep it short
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > _TIMEOUT:
                raise RuntimeError(f"{topic}: nothing in {_TIMEOUT} s, open partitions {sorted(open_partitions)}")
            for message in messages:
                error = message.error()
                if error is None:
                    rows.append(_row(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise RuntimeError(f"{topic}-{message.partition()}: {error}")
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def commit(consumer: Any, offsets: list[Any]) -> None:
    """Commit offsets, once there is a coordinator: the first commit of all makes its topic, and on a busy machine
    librdkafka does not wait until that is there. Raises KafkaException."""
    from confluent_kafka import KafkaException

    end = time.monotonic() + _TIMEOUT
    while True:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            return
        except KafkaException:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _row(message: Any) -> dict[str, Any]:
    from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

    kind, timestamp = message.timestamp()
    timestamp_type = {TIMESTAMP_CREATE_TIME: 0, TIMESTAMP_LOG_APPEND_TIME: 1}.get(kind, -1)
    return {
        "key": message.key(),
        "value": message.value(),
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": -1 if timestamp_type == -1 else timestamp,
        "timestampType": timestamp_type,
        "headers": list(message.headers() or []),
    }
