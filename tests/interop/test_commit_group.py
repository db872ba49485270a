"""commitGroup with a real Kafka: kafka-consumer-groups.sh shows the committed offsets and lag of a stream."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kafkalog_spark.errors import GroupCommitFailed
from tests.interop.real_kafka import RealKafka, available
from tests.source.helpers.stream_driver import Query

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    with RealKafka(tmp_path_factory.mktemp("kafka"), short_lived=True) as running:
        running.create_topic("orders", 2)
        yield running


def produce(kafka: RealKafka, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(count):
        producer.produce("orders", b"%d" % number, partition=number % 2)
    assert producer.flush(120) == 0


def described(kafka: RealKafka, group: str) -> dict[str, tuple[int, int, int]]:
    """What the tool prints: partition -> (current offset, log end offset, lag)."""
    told = kafka.tool("ConsumerGroupCommand", "--bootstrap-server", kafka.bootstrap, "--describe", "--group", group)
    rows = [line.split() for line in told.splitlines() if line.startswith(group)]
    return {partition: (int(at), int(end), int(lag)) for _, _, partition, at, end, lag, *_ in rows}


def query(kafka: RealKafka, group: str, **options: object) -> Query:
    given: dict[str, Any] = {"commitGroup": group, "kafka.bootstrap.servers": kafka.bootstrap, **options}
    return Query(
        Path(kafka.data_dir), subscribe="orders", startingOffsets="earliest", trigger_kind="availableNow", **given
    )


def await_coordinator(kafka: RealKafka, group: str) -> None:
    """Return once Kafka has loaded the group's partition, which takes long on a busy machine."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    end = time.monotonic() + 120
    while True:
        try:
            consumer.committed([TopicPartition("orders", 0)], timeout=10)
            break
        except KafkaException:
            assert time.monotonic() < end
    consumer.close()


def test_consumer_groups_tool_shows_the_lag_of_a_stream(kafka: RealKafka) -> None:
    produce(kafka, 20)
    await_coordinator(kafka, "etl")
    first = query(kafka, "etl", maxOffsetsPerTrigger=6, failOnCommitError=True)
    assert sum(len(batch) for batch in first.trigger()) == 20
    assert described(kafka, "etl") == {"0": (10, 10, 0), "1": (10, 10, 0)}
    produce(kafka, 8)
    assert described(kafka, "etl") == {"0": (10, 14, 4), "1": (10, 14, 4)}


def test_group_with_members_is_refused_with_the_reason(kafka: RealKafka) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "members", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    try:
        while not consumer.assignment():
            consumer.poll(1.0)
        with pytest.raises(
            GroupCommitFailed, match=r"consumer group 'members': .*\(the group has members; name a group"
        ):
            query(kafka, "members", failOnCommitError=True).trigger()
    finally:
        consumer.close()
