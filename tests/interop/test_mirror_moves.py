"""docs/mirror.md, both ways: from a real Kafka to kafkalog and from there to another one. Producers and consumers move;
no record is lost, none comes twice, and no group reads one twice or passes one over."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE
from tests.broker.mirror.helpers.mirrors import MirrorProcess, findings, log_data, mirror_once, same_logs
from tests.interop.consume import commit
from tests.interop.real_kafka import RealKafka, available
from tests.interop.test_mirror import WAIT, until

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

PROPERTIES = {
    "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1, "group.initial.rebalance.delay.ms": 0
}  # fmt: skip
TOPICS = "orders|__consumer_offsets|__transaction_state"
SETTINGS = {"internal.segment.bytes": 20_000}
PARTITIONS = 2


def send(bootstrap: str, first: int, count: int) -> None:
    """Produce numbers with an idempotent producer that is used for this cluster only."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
    for number in range(first, first + count):
        producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(WAIT) == 0


def send_transaction(bootstrap: str, first: int, count: int) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover", "linger.ms": 1})
    producer.init_transactions(WAIT)
    producer.begin_transaction()
    for number in range(first, first + count):
        producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
    producer.flush(WAIT)
    return producer


def read(bootstrap: str, count: int) -> list[int]:
    """What the group has not read yet, as many as `count` records, which it then has."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "error",
            "enable.auto.commit": False, "isolation.level": "read_committed",
        }
    )  # fmt: skip
    consumer.subscribe(["orders"])
    found: list[int] = []
    while len(found) < count:
        for message in consumer.consume(count - len(found), WAIT):
            assert message.error() is None, message.error()
            found.append(int(message.value()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(found)


def begin_group(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    commit(consumer, [TopicPartition("orders", partition, 0) for partition in range(PARTITIONS)])
    consumer.close()


def test_move_from_kafka_to_kafkalog_and_to_another_kafka_loses_no_record(tmp_path: Path) -> None:
    mirror, handover = tmp_path / "mirror", tmp_path / "handover"
    with RealKafka(tmp_path / "first", short_lived=True) as first:
        first.create_topic("orders", PARTITIONS, SETTINGS)
        begin_group(first.bootstrap)
        send(first.bootstrap, 0, 500)
        send_transaction(first.bootstrap, 500, 100).commit_transaction(WAIT)
        assert read(first.bootstrap, 300)
        # 1, 2: the mirror follows, with the groups, while all goes on
        options = ["--internal", "-X", "fetch.wait.max.ms=50"]
        with MirrorProcess(first.bootstrap, mirror, *options, topics=TOPICS) as running:
            send(first.bootstrap, 600, 200)
            until(lambda: all(equal(first.data_dir, mirror, partition) for partition in range(PARTITIONS)))
            assert running.stop() == 0
        left = send_transaction(first.bootstrap, 9000, 10)  # its producer never ends it
        # 3: producers and consumers are stopped; the rest comes
        mirror_once(first.bootstrap, mirror, TOPICS, internal=True)
    # 4: the directory becomes a broker's own
    left.purge()
    with RunningBroker(mirror, PROPERTIES) as ours:
        assert ours.log().count("truncating offsets") == PARTITIONS
        seen = 300
        send(ours.bootstrap, 800, 100)
        again = send_transaction(ours.bootstrap, 900, 50)
        again.commit_transaction(WAIT)
        after = read(ours.bootstrap, 650)
        assert len(set(after)) == 650
        assert set(after) <= set(range(950))
        seen += len(after)
        assert seen == 950
        kept = {partition: log_data(mirror, "orders", partition) for partition in range(PARTITIONS)}
        send(ours.bootstrap, 950, 50)
        # and back: another Kafka, with topics of the same names and partitions
        second = RealKafka(tmp_path / "second", short_lived=True)
        with second:
            second.create_topic("orders", PARTITIONS, SETTINGS)
            begin_group_elsewhere(second.bootstrap)
        names = "orders|__consumer_offsets"
        with MirrorProcess(ours.bootstrap, handover, *options, topics=names) as running:
            send(ours.bootstrap, 1000, 100)
            assert len(read(ours.bootstrap, 120)) == 120
            until(lambda: all(equal(mirror, handover, partition) for partition in range(PARTITIONS)))
            assert running.stop() == 0
        mirror_once(ours.bootstrap, handover, names, internal=True)
    for name in ("orders-0", "orders-1", "__consumer_offsets-0"):
        put_into(second, handover, name)
    second.start()
    try:
        send(second.bootstrap, 1100, 50)
        assert len(read(second.bootstrap, 80)) == 80
        rows = second.consume("orders", isolation_level="read_committed")
        assert sorted(int(row["value"]) for row in rows) == list(range(1150))
    finally:
        second.stop()
    for partition, data in kept.items():
        assert log_data(second.data_dir, "orders", partition).startswith(data)
    assert findings(mirror) == []


def begin_group_elsewhere(bootstrap: str) -> None:
    """Create a group in the other cluster, so that __consumer_offsets exists."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "another", "enable.auto.commit": False})
    commit(consumer, [TopicPartition("orders", 0, 0)])
    consumer.close()


def equal(one: Path, other: Path, partition: int) -> bool:
    return same_logs(one, other, "orders", partition)


def put_into(kafka: RealKafka, mirror: Path, name: str) -> None:
    """A partition's directory in the place of the one that a stopped Kafka made, whose topic id stays. Without the
    snapshots of producers: this Kafka gives out producer ids from 0 on, which others had before."""
    place = kafka.data_dir / name
    metadata = (place / PARTITION_METADATA_FILE).read_bytes()
    shutil.rmtree(place)
    shutil.copytree(mirror / name, place, ignore=shutil.ignore_patterns("*.snapshot"))
    (place / PARTITION_METADATA_FILE).write_bytes(metadata)
