"""Rights that requests of share groups need with an authorizer."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog_broker.protocol.client_messages import plain_login_requests
from kafkalog_broker.testing import RunningBroker, allow, running_broker
from kafkalog_broker.testing_support.remote import ask
from tests.broker.api.helpers.plain_entities import request_entity

PROPERTIES = {"offsets.topic.num.partitions": 1, "share.coordinator.state.topic.num.partitions": 1}
RIGHTS = [
    allow("alice", "READ", group="readers"),
    allow("alice", "DESCRIBE", group="seen"),
    allow("alice", "DELETE", group="seen"),
    allow("alice", "READ", topic="open"),
    allow("alice", "DESCRIBE", topic="open"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(
        PROPERTIES, topics={"open": 1, "closed": 1}, security="SASL_PLAINTEXT", users={"alice": "secret"}, acls=RIGHTS
    ) as running:
        with running.connect() as connection:  # as an administrator, so that the internal topics are created
            while said(connection, 10, 6, key_type=0, coordinator_keys=["seen"]).coordinators[0].error_code:
                pass
        yield running


@pytest.fixture
def connection(broker: RunningBroker) -> Iterator[socket.socket]:
    with alice(broker) as connected:
        yield connected


def alice(broker: RunningBroker) -> socket.socket:
    host, _, port = broker.bootstrap.rpartition(":")
    connection = socket.create_connection((host, int(port)), 30)
    for request in plain_login_requests("alice", "secret"):
        assert not ask(connection, request).error_code
    return connection


def said(connection: socket.socket, key: int, version: int, **values: Any) -> Any:
    return ask(connection, request_entity(key, version, values, {}))


def beat(connection: socket.socket, group: str, topic: str) -> str:
    answer = said(connection, 76, 1, group_id=group, member_id="m", member_epoch=0, rack_id=None,
                  subscribed_topic_names=[topic])  # fmt: skip
    return str(answer.error_code.name)


def test_heartbeat_needs_read_of_the_group_and_describe_of_its_topics(connection: socket.socket) -> None:
    assert beat(connection, "other", "open") == "group_authorization_failed"
    assert beat(connection, "readers", "closed") == "topic_authorization_failed"


@pytest.mark.parametrize("key", [78, 79])
def test_fetch_and_acknowledge_need_read_of_the_group(connection: socket.socket, key: int) -> None:
    answer = said(connection, key, 2, group_id="other", member_id="m", share_session_epoch=1, max_wait=0, min_bytes=0,
                  max_bytes=1, max_records=1, batch_size=1, topics=[], forgotten_topics_data=[])  # fmt: skip
    assert answer.error_code.name == "group_authorization_failed"


def test_unauthorized_topics_are_refused_individually(broker: RunningBroker) -> None:
    ids = _ids(broker)
    with alice(broker) as connection:
        named = [
            {"topic_id": str(ids[name]), "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}
            for name in ("open", "closed")
        ]
        answer = said(connection, 78, 2, group_id="readers", member_id="m", share_session_epoch=0, max_wait=0,
                      min_bytes=0, max_bytes=1, max_records=1, batch_size=1, topics=named,
                      forgotten_topics_data=[])  # fmt: skip
        found = {topic.topic_id: topic.partitions[0].error_code.name for topic in answer.responses}
        assert found[ids["closed"]] == "topic_authorization_failed"
        assert found[ids["open"]] != "topic_authorization_failed"


def _ids(broker: RunningBroker) -> dict[str, uuid.UUID]:
    described = {}
    with broker.connect() as connection:
        answer = said(connection, 3, 12, topics=[{"topic_id": None, "name": "open"}],
                      allow_auto_topic_creation=False, include_topic_authorized_operations=False)  # fmt: skip
        described["open"] = answer.topics[0].topic_id
    from kafkalog_spark.format.partition_metadata import read_partition_metadata

    topic_id = read_partition_metadata(broker.log_dir / "closed-0" / "partition.metadata")
    assert topic_id is not None
    return {**described, "closed": topic_id}


@pytest.mark.parametrize(("key", "version"), [(83, 0), (84, 0), (85, 1), (86, 0), (87, 1)])
def test_state_requests_need_cluster_action(connection: socket.socket, key: int, version: int) -> None:
    number = {"partition": 0, "state_epoch": 0, "start_offset": 0, "leader_epoch": 0, "delivery_complete_count": 0,
              "state_batches": []}  # fmt: skip
    topics = [{"topic_id": str(uuid.uuid4()), "partitions": [number]}]
    answer = said(connection, key, version, group_id="readers", topics=topics)
    assert answer.results[0].partitions[0].error_code.name == "cluster_authorization_failed"


def test_administration_needs_rights_on_group_and_topics(connection: socket.socket) -> None:
    groups = said(connection, 77, 1, group_ids=["seen", "other"], include_authorized_operations=False).groups
    codes = [group.error_code.name for group in groups]
    assert codes == ["group_authorization_failed", "group_id_not_found"], "in the order of KafkaApis"
    offsets = [
        {"group_id": name, "topics": [{"topic_name": "closed", "partitions": [0]}]} for name in ("seen", "other")
    ]
    found = said(connection, 90, 1, groups=offsets).groups
    assert found[0].topics[0].partitions[0].error_code.name == "topic_authorization_failed"
    assert found[1].error_code.name == "group_authorization_failed"
    moved = [{"topic_name": "closed", "partitions": [{"partition_index": 0, "start_offset": 1}]}]
    assert said(connection, 91, 0, group_id="other", topics=moved).error_code.name == "group_authorization_failed"
    partitions = said(connection, 91, 0, group_id="readers", topics=moved).responses[0].partitions
    assert partitions[0].error_code.name == "topic_authorization_failed"
    forgotten = [{"topic_name": "closed"}]
    assert said(connection, 92, 0, group_id="other", topics=forgotten).error_code.name == "group_authorization_failed"
