"""Deleting __consumer_offsets deletes the groups and offsets that it holds, in memory too (KAFKA-19274)."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog_spark.format.names import OFFSETS_TOPIC
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.group_calls import COMMIT, FIND, LIST, commit_values
from tests.broker.api.helpers.transaction_requests import OFFSET_FETCH, TOPIC, offset_fetch_fields
from tests.broker.transactions.helpers.dispatched import Client

DELETE_TOPICS = 20
MEMBER = "a-member"


@pytest.fixture
def process(tmp_path):
    with BrokerInProcess(tmp_path / "data", {"offsets.topic.num.partitions": "1"}) as running:
        running.run(running.broker.ensure_topic(TOPIC, 1, {}))
        yield running


def commit(client: Client, group_id: str, offset: int) -> str:
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": None,
    }
    topics = [{"name": TOPIC, "topic_id": f"$id:{TOPIC}", "partitions": [partition]}]
    answer = client.send(COMMIT, 9, **commit_values(group_id, topics=topics))
    return str(answer["topics"][0]["partitions"][0]["error_code"])


def committed(client: Client, group_id: str) -> int:
    (group,) = client.send(OFFSET_FETCH, 8, **offset_fetch_fields(group_id, stable=False))["groups"]
    return int(group["topics"][0]["partitions"][0]["committed_offset"])


def find_coordinator(client: Client) -> None:
    """Create __consumer_offsets if it is absent."""
    (found,) = client.send(FIND, 4, key_type=0, coordinator_keys=["any"])["coordinators"]
    assert found["error_code"] == "none"


def group_ids(client: Client) -> list[str]:
    return sorted(group["group_id"] for group in client.send(LIST, 4, states_filter=[])["groups"])


def heartbeat(client: Client, epoch: int) -> dict[str, Any]:
    joins = {"rebalance_timeout": 60_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
    goes_on = {"rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
    return client.send(
        68, 1, group_id="consumers", member_id=MEMBER, member_epoch=epoch, instance_id=None, rack_id=None,
        subscribed_topic_regex=None, server_assignor=None, **(goes_on if epoch else joins),
    )  # fmt: skip


def test_delete_topics_of_consumer_offsets_forgets_its_groups_and_offsets(process):
    client = Client(process)
    find_coordinator(client)
    assert commit(client, "lost", 5) == "none"
    epoch = heartbeat(client, 0)["member_epoch"]
    assert group_ids(client) == ["consumers", "lost"]
    (deleted,) = client.send(DELETE_TOPICS, 5, topic_names=[OFFSETS_TOPIC], timeout=1_000)["responses"]
    assert deleted["error_code"] == "none"
    assert group_ids(client) == []
    assert commit(client, "lost", 6) == "coordinator_not_available"
    find_coordinator(client)
    assert heartbeat(client, epoch)["error_code"] == "group_id_not_found"
    assert commit(client, "new", 7) == "none"
    assert (committed(client, "lost"), committed(client, "new")) == (-1, 7)
