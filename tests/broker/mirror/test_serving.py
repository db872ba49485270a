"""A broker that serves a mirror during the copy, and the takeover of the mirror by that broker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kafkalog_broker.mirror.takeover_record import TAKEOVER_FILE, read_record
from kafkalog_broker.storage.producer_ids import ProducerIds
from kafkalog_broker.testing import BrokerDied, RunningBroker, running_broker
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, read_leader_epochs
from tests.broker.mirror.helpers.mirrors import findings, log_data, mirror_once

WAIT = 120
"""Seconds for what takes one on an idle machine."""


@pytest.fixture
def source() -> Iterator[RunningBroker]:
    with running_broker({"offsets.topic.num.partitions": 1}, topics={"orders": 2}) as running:
        yield running


def serving(source: RunningBroker, directory: Path) -> RunningBroker:
    return RunningBroker(
        directory,
        {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0},
        arguments=["--mirror-of", source.bootstrap, "-X", "fetch.wait.max.ms=50"],
    )


def produce(broker: RunningBroker, first: int, count: int, **config) -> list[KafkaError | None]:
    refused: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, **config})
    for number in range(first, first + count):
        producer.produce("orders", b"%d" % number, partition=0, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(WAIT) == 0
    return [error for error in refused if error is not None]


def consume(consumer: Consumer, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    end = time.monotonic() + WAIT
    while len(found) < count and time.monotonic() < end:
        for message in consumer.consume(count - len(found), 0.2):
            error = message.error()
            assert error is None or error.retriable() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART, error
            if error is None:
                found.append((message.offset(), message.value()))
    return found


def group(broker: RunningBroker, **config) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 200, **config,
        }
    )  # fmt: skip


def test_mirror_serves_consumers_and_refuses_producers(source, tmp_path):
    produce(source, 0, 50)
    mirror = serving(source, tmp_path / "mirror")
    with mirror:
        consumer = group(mirror)
        consumer.subscribe(["orders"])
        assert consume(consumer, 50) == [(number, b"%d" % number) for number in range(50)]
        produce(source, 50, 20)  # while the consumer waits
        assert consume(consumer, 20) == [(number, b"%d" % number) for number in range(50, 70)]
        consumer.commit(asynchronous=False)
        consumer.close()
        refused = produce(mirror, 0, 3)
        assert [error and error.code() for error in refused] == [KafkaError.POLICY_VIOLATION] * 3
        admin = AdminClient({"bootstrap.servers": mirror.bootstrap})
        for futures in (
            admin.create_topics([NewTopic("mine", 1)]),
            admin.create_partitions([NewPartitions("orders", 5)]),
            admin.delete_topics(["orders"]),
            admin.delete_records([TopicPartition("orders", 0, 10)]),
        ):
            for future in futures.values():
                with pytest.raises(KafkaException) as failed:
                    future.result(WAIT)
                assert failed.value.args[0].code() == KafkaError.POLICY_VIOLATION
        transactional = Producer({"bootstrap.servers": mirror.bootstrap, "transactional.id": "t"})
        with pytest.raises(KafkaException) as failed:
            transactional.init_transactions(WAIT)
        assert failed.value.args[0].fatal()
        assert failed.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (
            "mine" not in admin.list_topics("mine", timeout=WAIT).topics
            or admin.list_topics("mine", timeout=WAIT).topics["mine"].error
        )
    produce(source, 70, 5)
    with mirror:  # its groups are its own, and survive
        consumer = group(mirror)
        consumer.subscribe(["orders"])
        assert consume(consumer, 5)[0] == (70, b"70")
        consumer.close()
    assert log_data(tmp_path / "mirror", "orders") == log_data(source.log_dir, "orders")
    assert "__consumer_offsets" not in AdminClient({"bootstrap.servers": source.bootstrap}).list_topics().topics
    assert findings(tmp_path / "mirror") == []


@pytest.mark.end_to_end
def test_mirroring_into_the_directory_of_a_broker_is_refused(source, tmp_path):
    with RunningBroker(tmp_path / "own") as own:
        own.create_topic("orders", 1)
    with pytest.raises(BrokerDied, match="that no mirror created"):
        serving(source, tmp_path / "own").start()


def open_transaction(source: RunningBroker) -> Producer:
    """Records 100 to 104, and others after them, in a transaction that does not end; `orders` has 110 then."""
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "open", "linger.ms": 0,
                         "transaction.timeout.ms": 900_000})  # fmt: skip
    producer.init_transactions(WAIT)
    producer.begin_transaction()
    for number in range(100, 105):
        producer.produce("orders", b"%d" % number, partition=0)
    producer.flush(WAIT)
    produce(source, 105, 5)
    return producer


@pytest.mark.end_to_end
def test_mirror_becomes_writable(source, tmp_path):
    mirror = tmp_path / "mirror"
    produce(source, 0, 100, **{"enable.idempotence": True})
    left_open = open_transaction(source)
    mirror_once(source.bootstrap, mirror, "orders")
    kept = log_data(mirror, "orders")
    (before,) = read_leader_epochs(source.log_dir / "orders-0" / LEADER_EPOCH_CHECKPOINT)
    with RunningBroker(mirror, {"transaction.state.log.num.partitions": 1}) as taken:
        assert "orders-0: truncating offsets 100 to 109" in taken.log()
        assert produce(taken, 1000, 10, **{"enable.idempotence": True}) == []
        consumer = group(taken, **{"isolation.level": "read_committed"})
        consumer.assign([TopicPartition("orders", 0, 95)])
        assert consume(consumer, 15) == [
            *((number, b"%d" % number) for number in range(95, 100)),
            *((100 + number, b"%d" % (1000 + number)) for number in range(10)),
        ]
        consumer.close()
    record = read_record(mirror)
    assert record is not None
    assert record.is_done
    (cut,) = (one for one in record.partitions if one.log_end_offset < one.cut_end)
    assert (cut.topic, cut.partition, cut.log_end_offset, cut.cut_end) == ("orders", 0, 100, 110)
    epochs = read_leader_epochs(mirror / "orders-0" / LEADER_EPOCH_CHECKPOINT)
    assert [(entry.epoch, entry.start_offset) for entry in epochs] == [
        (before.epoch, 0), (before.epoch + 1, 100)
    ]  # fmt: skip
    assert not log_data(mirror, "orders").startswith(kept)
    source_ids = 0, 1  # of the idempotent producer and of the transaction
    assert ProducerIds([mirror]).next() > max(source_ids)
    assert findings(mirror) == []
    left_open.abort_transaction(WAIT)
    with RunningBroker(mirror) as again:  # once is enough
        assert again.log().count("truncating offsets") == 1
    assert json.loads((mirror / TAKEOVER_FILE).read_text())["done"] is True
