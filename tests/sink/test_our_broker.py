"""kafkalog-broker serves what the sink wrote, and goes on behind it; the sink goes on behind the broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.errors import BrokerOwnsDirectory
from tests.sink.helpers.written_logs import check_log, read, table, texts, values, write

pytestmark = pytest.mark.end_to_end

PARTITIONS = 3


def consumed(broker: RunningBroker, count: int) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of `count` records of topic t, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True,
                         "enable.auto.commit": False, "fetch.wait.max.ms": 10})  # fmt: skip
    try:
        consumer.assign([TopicPartition("t", partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
        found: list[tuple[int, int, bytes]] = []
        ended = 0
        while ended < PARTITIONS:
            message: Any = consumer.poll(120)
            assert message is not None, f"{len(found)} of {count} records after 30 s of silence"
            if message.error():
                ended += 1
            else:
                found.append((message.partition(), message.offset(), message.value()))
        return sorted(found)
    finally:
        consumer.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    running = RunningBroker(tmp_path / "data")
    yield running
    running.kill()


@pytest.mark.parametrize("stop", ["stop", "kill"])
def test_broker_and_sink_continue_each_others_logs(broker: RunningBroker, stop: str) -> None:
    log_dir = broker.log_dir
    settings: dict[str, Any] = {"topic": "t", "numPartitions": PARTITIONS, "compression_type": "lz4"}
    write(log_dir, values(*range(100)), values(*range(100, 200)), **settings)
    for turn in range(1, 3):
        broker.start()
        rows = read(log_dir, "t")
        assert consumed(broker, len(rows)) == [(row["partition"], row["offset"], row["value"]) for row in rows]
        with pytest.raises(BrokerOwnsDirectory):
            write(log_dir, values("refused"), **settings)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for partition in range(PARTITIONS):
            producer.produce("t", b"broker %d" % turn, partition=partition)
        assert producer.flush(120) == 0
        getattr(broker, stop)()
        write(log_dir, table([{"value": b"sink %d" % turn, "partition": n} for n in range(PARTITIONS)]), **settings)
        check_log(log_dir)
        for partition in range(PARTITIONS):
            assert texts(log_dir, "t", partition)[-2:] == [f"broker {turn}", f"sink {turn}"]
    broker.start()
    assert len(consumed(broker, 212)) == 200 + 2 * 2 * PARTITIONS


def test_created_files_are_not_world_writable(broker: RunningBroker) -> None:
    before = os.umask(0)
    try:
        write(broker.log_dir, values(*range(100)), topic="t", numPartitions=PARTITIONS)
        broker.start()
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for partition in range(PARTITIONS):
            producer.produce("t", b"more", partition=partition)
        assert producer.flush(120) == 0
        broker.create_topic("new")
        assert len(consumed(broker, 100)) == 100 + PARTITIONS
        broker.stop()
    finally:
        os.umask(before)
    made = [path for path in broker.log_dir.rglob("*") if path.stat().st_mode & 0o002]
    assert made == []
