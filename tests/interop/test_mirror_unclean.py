"""A mirror of three Kafkas across unclean elections: it truncates the records that the cluster lost."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.mirror.helpers.mirrors import MirrorProcess, findings, log_data, mirror_once, same_logs
from tests.interop.real_kafka import available
from tests.interop.test_mirror import CODECS, epochs, until
from tests.interop.three_kafkas import ThreeKafkas

pytestmark = [pytest.mark.skipif(available() is not None, reason=str(available())), pytest.mark.slow]

PROPERTIES = {
    "broker.session.timeout.ms": 9000, "broker.heartbeat.interval.ms": 300, "replica.lag.time.max.ms": 2000,
    "unclean.leader.election.enable": "true", "default.replication.factor": 3, "controlled.shutdown.enable": "false",
}  # fmt: skip
ELECTIONS = 3


def leader_of(kafkas: ThreeKafkas) -> int:
    """The node that leads orders-0, -1 without one."""
    alive = ",".join(broker.bootstrap for broker in kafkas.brokers.values() if broker.pid is not None)
    try:
        topics = AdminClient({"bootstrap.servers": alive, "log_level": 0}).list_topics("orders", timeout=5).topics
        return int(topics["orders"].partitions[0].leader)
    except Exception:  # noqa: BLE001 - whatever it is, there is no leader that is known
        return -1


def in_sync(kafkas: ThreeKafkas) -> list[int]:
    """The in-sync replicas of orders-0."""
    alive = ",".join(broker.bootstrap for broker in kafkas.brokers.values() if broker.pid is not None)
    topics = AdminClient({"bootstrap.servers": alive, "log_level": 0}).list_topics("orders", timeout=60).topics
    return list(topics["orders"].partitions[0].isrs)


def send(kafkas: ThreeKafkas, first: int, count: int, codec: str) -> None:
    alive = ",".join(broker.bootstrap for broker in kafkas.brokers.values() if broker.pid is not None)
    producer = Producer(
        {"bootstrap.servers": alive, "acks": 1, "compression.type": codec, "linger.ms": 1, "batch.num.messages": 7}
    )
    for number in range(first, first + count):
        producer.produce("orders", b"%d" % number * 3, b"%d" % (number % 9))
    assert producer.flush(60) == 0


def test_mirror_truncates_records_lost_in_unclean_elections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mirror = tmp_path / "mirror"
    with ThreeKafkas(tmp_path / "kafkas", PROPERTIES) as kafkas:
        admin = AdminClient({"bootstrap.servers": kafkas.bootstrap})
        config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        admin.create_topics([NewTopic("orders", 1, 3, config=config)])["orders"].result(60)
        until(lambda: leader_of(kafkas) > 0)
        with MirrorProcess(kafkas.bootstrap, mirror, "-X", "fetch.wait.max.ms=50", topics="orders") as running:
            sent = 0
            for number in range(ELECTIONS):
                codec = CODECS[number]
                send(kafkas, sent, 100, codec)
                leader = leader_of(kafkas)
                followers = [node for node in kafkas.brokers if node != leader]
                for node in followers:
                    kafkas.brokers[node].kill()
                until(lambda node=leader: in_sync(kafkas) == [node], 120)  # the leader goes on alone
                send(kafkas, sent + 100, 150, codec)
                until(lambda leader=leader: same(kafkas, leader, mirror))
                kafkas.brokers[leader].kill()
                kafkas.brokers[followers[0]].start()  # has none of the 150
                until(lambda node=followers[0]: leader_of(kafkas) == node, 120)
                send(kafkas, sent + 1000, 60, CODECS[-1])
                kafkas.brokers[leader].start()
                kafkas.brokers[followers[1]].start()
                until(lambda node=followers[0]: same(kafkas, node, mirror), 120)
                sent += 2000
            assert running.stop() == 0
            told = running.log()
        assert told.count("truncating offsets") >= ELECTIONS, told
        until(lambda: len({log_data(broker.data_dir, "orders") for broker in kafkas.brokers.values()}) == 1)
        with caplog.at_level(logging.WARNING):
            mirror_once(kafkas.bootstrap, mirror, "orders")
        assert "truncating offsets" not in caplog.text
        leader = leader_of(kafkas)
        assert log_data(mirror, "orders") == log_data(kafkas.brokers[leader].data_dir, "orders")
        assert epochs(mirror, "orders") == [
            entry for entry in epochs(kafkas.brokers[leader].data_dir, "orders")
            if entry[1] < log_end_offset(kafkas, leader)
        ]  # fmt: skip
        assert findings(mirror) == []


def same(kafkas: ThreeKafkas, node: int, mirror: Path) -> bool:
    return same_logs(mirror, kafkas.brokers[node].data_dir, "orders")


def log_end_offset(kafkas: ThreeKafkas, node: int) -> int:
    """Return the log end offset that the leader reports."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": kafkas.brokers[node].bootstrap, "group.id": "ends"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition("orders", 0), 30)[1])
    finally:
        consumer.close()
