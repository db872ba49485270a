"""What a whole broker does that no part of it does alone."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kio.schema.metadata.v12.request import MetadataRequest

from broker.config.broker_config import BrokerConfig
from broker.config.internal_topics import OFFSETS_TOPIC, internal_topic_configs
from broker.groups.messages import CommitRequest, CommittedPartition
from broker.server import Broker
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


@pytest.mark.parametrize(("flush_messages", "flushed"), [("1", True), ("9223372036854775807", False)])
def test_a_committed_offset_is_on_disk_where_flush_messages_is_1(
    tmp_path: Path, flush_messages: str, flushed: bool
) -> None:
    async def go() -> None:
        broker = Broker(
            BrokerConfig.from_properties(
                {
                    "log.dirs": str(tmp_path),
                    "listeners": "PLAINTEXT://127.0.0.1:0",
                    "offsets.topic.num.partitions": 1,
                    "log.flush.interval.messages": flush_messages,
                }
            )
        )
        await broker.start()
        try:
            await broker.flush_offsets("g")  # there is no topic yet
            await broker.ensure_topic(OFFSETS_TOPIC, 1, internal_topic_configs(broker.config)[OFFSETS_TOPIC])
            broker.groups.commit(CommitRequest("g", (CommittedPartition("orders", 0, 5, -1, None, UUID(int=1)),)))
            await broker.flush_offsets("g")
            log = broker.log(OFFSETS_TOPIC, 0)
            assert log.log_end_offset == 1
            assert (log.recovery_point == 1) is flushed
        finally:
            await broker.stop()

    asyncio.run(go())


def test_whoever_asks_for_an_internal_topic_while_it_is_made_waits_for_it(tmp_path: Path) -> None:
    async def go() -> None:
        properties = {
            "log.dirs": str(tmp_path),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "default.replication.factor": "3",
        }
        broker = Broker(BrokerConfig.from_properties(properties))
        await broker.start()
        try:
            topics = await asyncio.gather(*(broker.ensure_topic("internal", 20, {}) for _ in range(3)))
            assert len({topic.id for topic in topics}) == 1
            assert len(broker.logs.partitions("internal")) == 20
        finally:
            await broker.stop()

    asyncio.run(go())


def test_what_fails_in_the_background_is_told_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        properties = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        broker = Broker(BrokerConfig.from_properties(properties))
        await broker.start()
        broker.logs.tick(broker.clock.now_ms())
        broker._in_background(lambda: 1 // 0)
        await broker.stop()

    asyncio.run(go())
    assert "work in the background failed: ZeroDivisionError" in caplog.text


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
