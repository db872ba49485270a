"""Requests to a running broker that Kafka's clients do not send."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkalog_broker.testing import RunningBroker, running_broker
from kafkalog_broker.testing_support.client_requests import ask
from kafkalog_spark.format.partition_metadata import read_partition_metadata
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.share.helpers.share_script import earliest

PROPERTIES = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.share.assignment.interval.ms": 0,
}
TOPIC, GROUP, RECORDS, MOST_NAMES = "orders", "workers", 5, 4_000
_LAST_S = 120.0


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(PROPERTIES, topics={TOPIC: 1}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number)
        assert producer.flush(_LAST_S) == 0
        with running.connect() as connection:
            earliest(connection, GROUP)
            for group in (GROUP, "many"):
                while said(connection, 10, 6, key_type=0, coordinator_keys=[group]).coordinators[0].error_code:
                    pass
        yield running


@pytest.fixture
def connection(broker: RunningBroker) -> Iterator[socket.socket]:
    with broker.connect() as connected:
        yield connected


def said(connection: socket.socket, key: int, version: int, **values: Any) -> Any:
    return ask(connection, request_entity(key, version, values, {}))


def fetch(connection: socket.socket, epoch: int, topics: list[Any], **values: Any) -> Any:
    return said(
        connection, 78, 2, group_id=GROUP, member_id="m", share_session_epoch=epoch, min_bytes=1, max_bytes=1 << 20,
        batch_size=500, share_acquire_mode=0, is_renew_ack=False, topics=topics, forgotten_topics_data=[],
        **{"max_wait": 0, "max_records": 100, **values},
    )  # fmt: skip


def beat(connection: socket.socket, group: str, epoch: int, names: list[str] | None) -> Any:
    return said(connection, 76, 1, group_id=group, member_id="m", member_epoch=epoch, rack_id=None,
                subscribed_topic_names=names)  # fmt: skip


def test_partition_named_twice_in_the_first_fetch_is_returned_once(
    broker: RunningBroker, connection: socket.socket
) -> None:
    known_id = read_partition_metadata(broker.log_dir / f"{TOPIC}-0" / "partition.metadata")
    assert known_id is not None
    epoch, end = 0, time.monotonic() + _LAST_S
    while True:  # until its share partitions have a state
        answer = beat(connection, GROUP, epoch, None if epoch else [TOPIC])
        epoch = answer.member_epoch
        if answer.assignment is not None and answer.assignment.topic_partitions:
            break
        assert time.monotonic() < end, answer
        time.sleep(0.02)
    partition = {"partition_index": 0, "acknowledgement_batches": []}
    topic_id: uuid.UUID | None = known_id
    topic = {"topic_id": str(topic_id), "partitions": [partition, partition]}
    given = [one for found in fetch(connection, 0, [topic, topic]).responses for one in found.partitions]
    assert [one.partition_index for one in given] == [0]
    acquired = [
        (got.first_offset, got.last_offset, got.delivery_count) for one in given for got in one.acquired_records
    ]
    assert acquired[0][0] == 0
    assert acquired[-1][1] == RECORDS - 1
    assert {count for _, _, count in acquired} == {1}
    assert given[0].records


def test_topics_of_a_share_group_member_are_limited(connection: socket.socket) -> None:
    names = [f"topic-{number}" for number in range(MOST_NAMES + 1)]
    refused = beat(connection, "many", 0, names)
    assert refused.error_code.name == "invalid_request"
    assert refused.error_message == f"{MOST_NAMES + 1} topics, at most {MOST_NAMES} may be named"
    assert not beat(connection, "many", 0, names[:MOST_NAMES]).error_code


def test_topics_of_a_consumer_group_member_are_limited(connection: socket.socket) -> None:
    def joined(names: list[str]) -> Any:
        return said(
            connection, 68, 1, group_id="consumers", member_id="m", member_epoch=0, instance_id=None, rack_id=None,
            rebalance_timeout=30_000, subscribed_topic_names=names, subscribed_topic_regex=None, server_assignor=None,
            topic_partitions=[],
        )  # fmt: skip

    names = [f"topic-{number}" for number in range(MOST_NAMES + 1)]
    refused = joined(names)
    assert refused.error_code.name == "invalid_request"
    assert refused.error_message == f"{MOST_NAMES + 1} topics, at most {MOST_NAMES} may be named"
    assert not joined(names[:MOST_NAMES]).error_code
