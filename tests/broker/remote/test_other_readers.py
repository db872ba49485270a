"""Remote segments read by share groups and by clients of Fetch versions 0 to 3."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkalog_broker.testing import RunningBroker, running_broker
from kafkalog_broker.testing_support.client_requests import ask
from kafkalog_spark.format.partition_metadata import read_partition_metadata
from tests.broker.api.helpers.admin_scenario import SET, change, incremental
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.old_versions.helpers.old_client import OldClient, connect_over_network, whole
from tests.broker.remote.helpers.tiered_broker import configs, local_logs, wait_until
from tests.broker.share.helpers.share_script import earliest
from tests.log.helpers.plain_decoder import decode_batches

PROPERTIES = {
    "offsets.topic.num.partitions": 1, "share.coordinator.state.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1, "group.share.assignment.interval.ms": 0,
    "remote.fetch.max.wait.ms": 60_000,
}  # fmt: skip
GROUP = 32
"""A group, as a resource with a configuration."""
VALUES = [b"%01000d" % number for number in range(90)]
SECONDS = 120.0


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """orders has 90 records in nine transactions, every third of which is aborted; all but the last are remote."""
    with running_broker(PROPERTIES, topics={"orders": {"partitions": 1, **configs()}}, tiered=True) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": "t", "linger.ms": 0})
        producer.init_transactions()
        for first in range(0, 90, 10):
            producer.begin_transaction()
            for number in range(first, first + 10):
                producer.produce("orders", VALUES[number], partition=0)
                producer.flush()
            producer.abort_transaction() if first % 30 == 10 else producer.commit_transaction()
        wait_until(lambda: len(local_logs(running, "orders")) == 1, running.log()[-3000:])
        yield running


COMMITTED = [value for number, value in enumerate(VALUES) if number // 10 % 3 != 1]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_fetch_versions_1_to_3_return_remote_records(broker: RunningBroker, version: int) -> None:
    client, offset = OldClient(connect_over_network(broker.host, broker.port)), 0
    found: list[bytes | None] = []
    while len(found) < len(COMMITTED):
        fetched = client.fetch(version, "orders", offset, wait=1000)
        assert fetched.error == 0
        records = [record for batch in whole(fetched.data) for record in batch.records if record.offset >= offset]
        found += [record.value for record in records]
        offset = records[-1].offset + 1 if records else offset
    assert found == COMMITTED


def said(connection: socket.socket, key: int, version: int, **values: Any) -> Any:
    return ask(connection, request_entity(key, version, values, {}))


def joined(connection: socket.socket, group: str) -> None:
    """Return once member `m` of the share group has the topic."""
    epoch, end = 0, time.monotonic() + SECONDS
    while True:
        answer = said(connection, 76, 1, group_id=group, member_id="m", member_epoch=epoch, rack_id=None,
                      subscribed_topic_names=None if epoch else ["orders"])  # fmt: skip
        epoch = answer.member_epoch
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return
        assert time.monotonic() < end, answer
        time.sleep(0.02)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_share_group_receives_remote_records(broker: RunningBroker, level: str) -> None:
    topic_id = read_partition_metadata(broker.log_dir / "orders-0" / "partition.metadata")
    assert topic_id is not None
    expected = VALUES if level == "read_uncommitted" else COMMITTED
    given: dict[int, bytes | None] = {}
    with broker.connect() as connection:
        earliest(connection, level)
        key, (version,), fields = incremental(change(GROUP, level, ("share.isolation.level", SET, level)))
        assert not said(connection, key, version, **fields).responses[0].error_code
        while said(connection, 10, 6, key_type=0, coordinator_keys=[level]).coordinators[0].error_code:
            pass
        joined(connection, level)
        partition = {"partition_index": 0, "acknowledgement_batches": []}
        topics = [{"topic_id": str(topic_id), "partitions": [partition]}]
        epoch, end = 0, time.monotonic() + SECONDS
        while len(given) < len(expected):
            answer = said(
                connection, 78, 2, group_id=level, member_id="m", share_session_epoch=epoch, min_bytes=1,
                max_bytes=1 << 20, batch_size=500, share_acquire_mode=0, is_renew_ack=False, max_wait=500,
                max_records=1000, forgotten_topics_data=[], topics=[] if epoch else topics,
            )  # fmt: skip
            assert time.monotonic() < end, answer
            epoch += 1
            for one in (one for topic in answer.responses for one in topic.partitions):
                assert not one.error_code
                acquired = {n for run in one.acquired_records for n in range(run.first_offset, run.last_offset + 1)}
                for batch in decode_batches(bytes(one.records or b"")):
                    if not batch.is_control:
                        given |= {record.offset: record.value for record in batch.records if record.offset in acquired}
    assert [value for _, value in sorted(given.items())] == expected
