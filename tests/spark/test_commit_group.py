"""commitGroup in real Spark: a query over a broker's log directory, and the lag that the broker has of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from kafkalog_broker.testing import RunningBroker, allow, running_broker
from tests.spark.helpers.streams import failure, frame_of, ran

pytestmark = pytest.mark.end_to_end

USERS = {"admin": "admin-secret", "etl": "etl-secret", "stranger": "stranger-secret"}
RIGHTS = [
    allow("admin", "ALL", topic="*", group="*"),
    allow("etl", "READ", topic="orders", group="etl"),
    allow("etl", "DESCRIBE", topic="orders"),
    allow("stranger", "DESCRIBE", topic="orders"),
]


def produce(broker: RunningBroker, user: dict[str, Any], count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **user})
    for number in range(count):
        producer.produce("orders", b"%d" % number, partition=number % 2)
    assert producer.flush(120) == 0


def committed(broker: RunningBroker, user: dict[str, Any], group: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **user})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(120)
    return {position.partition: position.offset for position in answer.topic_partitions if position.topic == "orders"}


def test_commit_group_reports_the_lag_to_a_broker_with_sasl_and_acls(spark: Any, tmp_path: Path) -> None:
    with running_broker(topics={"orders": 2}, security="SASL_PLAINTEXT", users=USERS, acls=RIGHTS) as broker:
        admin = broker.client("admin")
        produce(broker, admin, 20)

        def frame(user: str, **options: object) -> Any:
            login = {f"kafka.{name}": value for name, value in broker.client(user).items()}
            of_group = {"commitGroup": "etl", "kafka.bootstrap.servers": broker.bootstrap, **login, **options}
            return frame_of(spark, broker.log_dir, subscribe="orders", startingOffsets="earliest", **of_group)

        checkpoint = tmp_path / "checkpoint"
        sure = {"failOnCommitError": True}  # waits for the answer however busy the machine is
        assert len(ran(frame("etl", maxOffsetsPerTrigger=7, **sure), checkpoint).values) == 20
        assert committed(broker, admin, "etl") == {0: 10, 1: 10}
        produce(broker, admin, 5)
        # who may not commit: the query goes on, and the group stays where it was
        assert len(ran(frame("stranger"), checkpoint).values) == 5
        assert committed(broker, admin, "etl") == {0: 10, 1: 10}
        # a restart that reads nothing catches up
        assert ran(frame("etl", **sure), checkpoint).values == []
        assert committed(broker, admin, "etl") == {0: 13, 1: 12}
        produce(broker, admin, 1)
        text = failure(frame("stranger", failOnCommitError=True), tmp_path / "another")
        assert "offsets were not committed to consumer group 'etl': " in text
        assert "uthoriz" in text


def test_unreachable_broker_does_not_stop_the_query(spark: Any, tmp_path: Path) -> None:
    with running_broker(topics={"orders": 2}) as broker:
        produce(broker, {}, 20)
        broker.stop()
        frame = frame_of(
            spark, broker.log_dir, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=5,
            commitGroup="etl", **{"kafka.bootstrap.servers": broker.bootstrap},
        )  # fmt: skip
        assert len(ran(frame, tmp_path / "checkpoint").values) == 20
        broker.start()
        assert committed(broker, {}, "etl") == {}
