"""What a whole broker does that no part of it does alone."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kio.schema.metadata.v12.request import MetadataRequest

from broker.testing import RunningBroker, running_broker

SECONDS = 30


def alter_broker(broker: RunningBroker, **values: str) -> None:
    changes = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)


def all_topics() -> MetadataRequest:
    return MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)


def is_served(broker: RunningBroker) -> bool:
    try:
        broker.ask(all_topics())
    except OSError:
        return False
    return True


def test_network_limits_change_while_the_broker_runs(tmp_path: Path) -> None:
    with running_broker(log_dir=tmp_path / "data") as broker:
        held = [socket.create_connection((broker.host, broker.port)) for _ in range(3)]
        assert is_served(broker)
        alter_broker(broker, max_connections_per_ip_overrides="127.0.0.1:3")
        assert not is_served(broker)
        broker.stop()
        for connection in held:
            connection.close()
        broker.start()
        assert is_served(broker), "the limit is kept, and one connection is below it"


@pytest.mark.kafkalog(properties={"max.connections.per.ip.overrides": ""})
def test_a_limit_that_cannot_be_read_changes_nothing(kafkalog_broker: RunningBroker) -> None:
    with pytest.raises(KafkaException, match="list of address:number"):
        alter_broker(kafkalog_broker, max_connections_per_ip_overrides="127.0.0.1=3")
    assert is_served(kafkalog_broker)


@pytest.mark.kafkalog(topics={"orders": 1}, properties={"log.flush.interval.messages": 1})
def test_a_committed_offset_is_on_disk_where_flush_messages_is_1(kafkalog_broker: RunningBroker) -> None:
    consumer = Consumer({"bootstrap.servers": kafkalog_broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
    consumer.close()
    kafkalog_broker.stop()
    kafkalog_broker.start()
    again = Consumer({"bootstrap.servers": kafkalog_broker.bootstrap, "group.id": "g"})
    assert again.committed([TopicPartition("orders", 0)], SECONDS)[0].offset == 5
    again.close()


def test_topics_of_unopened_logs_are_told_with_the_leader_epochs_of_their_files(tmp_path: Path) -> None:
    with running_broker(log_dir=tmp_path / "data", topics={"orders": 3}) as broker:
        broker.stop()
        epochs = tmp_path / "data" / "orders-1" / "leader-epoch-checkpoint"
        epochs.write_text("0\n2\n0 0\n7 0\n")
        (tmp_path / "data" / "orders-2" / "leader-epoch-checkpoint").write_text("damaged")
        broker.start()
        answer = broker.ask(all_topics())
        [topic] = answer.topics
        told = {partition.partition_index: partition.leader_epoch for partition in topic.partitions}
        assert told == {0: 0, 1: 7, 2: 0}
        assert [int(partition.error_code) for partition in topic.partitions] == [0, 0, 0]
