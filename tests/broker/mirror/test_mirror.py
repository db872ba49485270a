"""A mirror of a broker: copied logs, and changes to topics and logs of the source."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.mirror.mirror_file import OtherSource
from kafkalog_broker.protocol.mirror_messages import FETCH
from kafkalog_broker.storage.append.fetched_batches import parse_fetched_batches
from kafkalog_broker.storage.partition.follower import Follower
from kafkalog_broker.storage.topic_registry_file import parse_registry
from kafkalog_broker.testing import RunningBroker, running_broker
from tests.broker.mirror.helpers.mirrors import findings, log_data, mirror_once
from tests.broker.storage.helpers.loaded_logs import records
from tests.broker.storage.helpers.stored_logs import NOW, reopened

pytestmark = pytest.mark.end_to_end


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running_broker({"log.segment.bytes": 1 << 20}) as running:
        yield running


def produce(broker: RunningBroker, topic: str, count: int, *, partition=0, first=0, value=b"value", **config) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, "batch.num.messages": 10, **config})
    for number in range(first, first + count):
        producer.produce(topic, b"%s %d" % (value, number), b"key %d" % (number % 7), partition=partition)
    assert producer.flush(120) == 0


@pytest.fixture
def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def small(**fields) -> ClientSettings:
    """Small responses, so that little data takes many of them."""
    return ClientSettings(max_bytes=4096, max_partition_bytes=1500, max_wait_ms=50, **fields)


@pytest.mark.parametrize("version", [5, 7, 11, 12, 13])
def test_mirrored_logs_equal_the_source_with_each_fetch_version(broker, tmp_path, version):
    broker.create_topic("orders", 3)
    broker.create_topic("none", 1)
    for round_ in range(2):
        for partition, codec in enumerate(("none", "gzip", "zstd")):
            settings = {"compression.type": codec, "enable.idempotence": partition == 1}
            produce(broker, "orders", 400, partition=partition, first=400 * round_, **settings)
        mirror_once(broker.bootstrap, tmp_path / "mirror", settings=small(), max_versions={FETCH: version})
        for partition in range(3):
            assert log_data(tmp_path / "mirror", "orders", partition) == log_data(broker.log_dir, "orders", partition)
    assert log_data(tmp_path / "mirror", "none") == b""
    ids = [
        parse_registry((directory / "kafkalog.topics.json").read_bytes()).topics["orders"].id
        for directory in (broker.log_dir, tmp_path / "mirror")
    ]
    assert ids[0] == ids[1]
    assert findings(tmp_path / "mirror") == []


def test_mirror_follows_added_partitions_and_a_recreated_topic(broker, admin, tmp_path, caplog):
    mirror = tmp_path / "mirror"
    broker.create_topic("orders", 1)
    produce(broker, "orders", 100)
    mirror_once(broker.bootstrap, mirror)
    admin.create_partitions([NewPartitions("orders", 3)])["orders"].result(120)
    produce(broker, "orders", 50, partition=2)
    mirror_once(broker.bootstrap, mirror)
    assert log_data(mirror, "orders", 2) == log_data(broker.log_dir, "orders", 2)
    admin.delete_topics(["orders"])["orders"].result(120)
    with caplog.at_level(logging.WARNING):
        mirror_once(broker.bootstrap, mirror)
    assert "orders is no longer at the source" in caplog.text
    assert len(log_data(mirror, "orders", 2)) > 0  # what was copied is not lost with its source
    broker.create_topic("orders", 2)
    produce(broker, "orders", 30, first=1000)
    with caplog.at_level(logging.WARNING):
        mirror_once(broker.bootstrap, mirror)
    assert "was deleted at the source and created again" in caplog.text
    assert log_data(mirror, "orders") == log_data(broker.log_dir, "orders")
    assert not (mirror / "orders-2").exists()


def test_records_deleted_at_the_source_are_deleted(broker, admin, tmp_path, caplog):
    mirror = tmp_path / "mirror"
    broker.create_topic("orders", 1)
    produce(broker, "orders", 100)
    mirror_once(broker.bootstrap, mirror)
    for until, says in ((60, ""), (155, "deleted offsets 100 to 154 before they were copied")):
        if until > 100:
            produce(broker, "orders", 100, first=100)
        admin.delete_records([TopicPartition("orders", 0, until)])[TopicPartition("orders", 0)].result(120)
        with caplog.at_level(logging.WARNING):
            mirror_once(broker.bootstrap, mirror)
        assert says in caplog.text
        log = reopened(mirror, log_start_offset=until)
        assert (log.log_start_offset, log.log_end_offset) == (until, 100 if until < 100 else 200)
        log.close()
    assert log_data(broker.log_dir, "orders").endswith(log_data(mirror, "orders"))
    start = (mirror / "log-start-offset-checkpoint").read_text()
    assert "orders 0 155" in start or (mirror / "orders-0" / f"{155:020d}.log").exists()


def test_log_beyond_the_end_of_the_source_is_truncated(broker, tmp_path, caplog):
    """Leader epochs cannot show the divergence: both logs are of epoch 0."""
    mirror = tmp_path / "mirror"
    broker.create_topic("orders", 1)
    produce(broker, "orders", 100)
    mirror_once(broker.bootstrap, mirror)
    log = reopened(mirror)
    Follower(log).append(parse_fetched_batches(memoryview(records(100, 20, leader_epoch=0))), NOW)
    log.close()
    produce(broker, "orders", 5, first=100)
    with caplog.at_level(logging.WARNING):
        mirror_once(broker.bootstrap, mirror, max_versions={FETCH: 11})
    assert "truncating offsets" in caplog.text
    assert log_data(broker.log_dir, "orders").startswith(log_data(mirror, "orders"))


def test_directory_of_another_cluster_is_refused(broker, tmp_path):
    mirror_once(broker.bootstrap, tmp_path / "mirror")
    with running_broker() as other, pytest.raises(OtherSource):
        mirror_once(other.bootstrap, tmp_path / "mirror")


def test_mirror_refuses_a_directory_taken_over_by_a_broker(broker, tmp_path):
    mirror = tmp_path / "mirror"
    broker.create_topic("orders", 1)
    produce(broker, "orders", 100, **{"enable.idempotence": True})
    mirror_once(broker.bootstrap, mirror)
    copied = log_data(mirror, "orders")
    with RunningBroker(mirror) as taken:
        produce(taken, "orders", 50, first=100, **{"enable.idempotence": True})
        assert "is no longer a mirror" in taken.log()
        consumer = Consumer({"bootstrap.servers": taken.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        values = [message.value() for message in consumer.consume(150, 30)]
        consumer.close()
    assert values == [b"value %d" % number for number in range(150)]
    assert log_data(mirror, "orders").startswith(copied)
    with pytest.raises(OtherSource, match="a broker has taken it over"):
        mirror_once(broker.bootstrap, mirror)


def test_only_selected_topics_are_copied(broker, tmp_path):
    for name in ("orders", "clicks", "clicks2"):
        broker.create_topic(name, 1)
    produce(broker, "clicks", 10)
    mirror_once(broker.bootstrap, tmp_path / "mirror", "clicks.*")
    found = sorted(path.name for path in Path(tmp_path / "mirror").iterdir() if path.is_dir())
    assert found == ["clicks-0", "clicks2-0"]


@pytest.mark.end_to_end
def test_rate_limit_bounds_the_bytes_per_second(broker, tmp_path):
    """Responses after the first one are delayed, which sets a lower bound for the total time."""
    broker.create_topic("orders", 1)
    produce(broker, "orders", 300, value=b"x" * 1000)
    size = len(log_data(broker.log_dir, "orders"))
    begun = time.monotonic()
    mirror_once(broker.bootstrap, tmp_path / "mirror", max_bytes_per_second=size // 4)
    assert time.monotonic() - begun > 2  # four answers of a second each, the last of which nobody waits for
    assert log_data(tmp_path / "mirror", "orders") == log_data(broker.log_dir, "orders")
