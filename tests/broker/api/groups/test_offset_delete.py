from __future__ import annotations

from typing import Any

from kafkalog_broker.groups.offset_records import OffsetKey
from tests.broker.api.helpers.group_calls import COMMIT, OFFSET_DELETE, FakeBroker, call, commit_values, member


def delete(broker: FakeBroker, group_id: str = "g") -> dict[str, Any]:
    topics = [
        {"name": "orders", "partitions": [{"partition_index": 0}, {"partition_index": 9}]},
        {"name": "nothing", "partitions": [{"partition_index": 0}]},
    ]
    return call(broker, OFFSET_DELETE, 0, group_id=group_id, topics=topics)


def codes(answer: dict[str, Any]) -> list[list[str]]:
    return [[part["error_code"] for part in topic["partitions"]] for topic in answer["topics"]]


def test_offsets_of_a_group_without_members_are_deleted() -> None:
    broker = FakeBroker()
    call(broker, COMMIT, 9, **commit_values())
    assert codes(delete(broker)) == [["none", "unknown_topic_or_partition"], ["unknown_topic_or_partition"]]
    offsets = broker.groups.shard("g").offsets
    assert offsets.get(OffsetKey("g", "orders", 0)) is None
    assert offsets.get(OffsetKey("g", "orders", 1)).offset == 11
    assert broker.world.log.records()[-1][1] is None


def test_offsets_of_topics_that_members_subscribe_to_are_kept() -> None:
    broker = FakeBroker()
    member(broker)
    assert codes(delete(broker))[0] == ["group_subscribed_to_topic", "unknown_topic_or_partition"]


def test_unknown_group_is_group_id_not_found() -> None:
    assert delete(FakeBroker()) == {"error_code": "group_id_not_found", "topics": []}
    assert delete(FakeBroker(), "") == {"error_code": "invalid_group_id", "topics": []}


def test_offsets_of_an_active_group_of_another_protocol_type_are_not_deleted() -> None:
    broker = FakeBroker()
    member(broker, protocol_type="consumer")
    broker.world.group().protocol_type = "connect"
    assert delete(broker)["error_code"] == "non_empty_group"
