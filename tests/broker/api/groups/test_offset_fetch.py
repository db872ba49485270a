from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafkalog_broker.api.groups import offset_fetch
from kafkalog_broker.api.groups.offset_fetch import PARTITIONS_PER_STEP
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.consumer.consumer_group_heartbeat import ConsumerHeartbeatRequest
from kafkalog_broker.groups.offset_records import OffsetAndMetadata, OffsetKey
from kafkalog_broker.storage.topic import Topic
from tests.broker.api.helpers.group_calls import COMMIT, FETCH, FakeBroker, call, commit_values, error_answer, versions
from tests.broker.api.helpers.short_time_slices import count_time_slices


def fetch_values(groups: tuple[str, ...] = ("g",), *, everything: bool = False, **changes: Any) -> dict[str, Any]:
    topics = None if everything else [
        {"name": "orders", "topic_id": str(UUID(int=5)), "partition_indexes": [0, 1, 7]},
        {"name": "nothing", "topic_id": str(UUID(int=6)), "partition_indexes": [0]},
    ]  # fmt: skip
    several = [{"group_id": group, "topics": topics, "member_id": None, "member_epoch": -1} for group in groups]
    return {"group_id": groups[0], "topics": topics, "require_stable": False, "groups": several} | changes


def committed_broker() -> FakeBroker:
    broker = FakeBroker()
    call(broker, COMMIT, 9, **commit_values())
    return broker


def only_group(answer: dict[str, Any], version: int) -> dict[str, Any]:
    if version < 8:
        return answer
    (group,) = answer["groups"]
    return group  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", versions(FETCH))
def test_committed_offsets_are_returned_in_every_version(version: int) -> None:
    group = only_group(call(committed_broker(), FETCH, version, **fetch_values()), version)
    orders, nothing = group["topics"]
    told = [(p["partition_index"], p["committed_offset"], p["metadata"], p["error_code"]) for p in orders["partitions"]]
    none = "unknown_topic_or_partition" if version == 0 else "none"  # as where ZooKeeper had no node
    assert told == [(0, 10, "note", "none"), (1, 11, "", "none"), (7, -1, "", none)]
    (missing,) = nothing["partitions"]
    assert (missing["committed_offset"], missing["error_code"]) == (-1, "unknown_topic_id" if version >= 10 else none)
    if version >= 5:
        assert [p["committed_leader_epoch"] for p in orders["partitions"]] == [3, 3, -1]
    if version >= 2:
        assert group["error_code"] == "none"


@pytest.mark.parametrize("version", range(2, 11))
def test_null_topics_return_all_topics(version: int) -> None:
    group = only_group(call(committed_broker(), FETCH, version, **fetch_values(everything=True)), version)
    (topic,) = group["topics"]
    assert [part["committed_offset"] for part in topic["partitions"]] == [10, 11]
    if version >= 10:
        assert topic["topic_id"] == str(UUID(int=5))


@pytest.mark.parametrize("version", range(8, 11))
def test_several_groups_have_results_of_their_own(version: int) -> None:
    answer = call(committed_broker(), FETCH, version, **fetch_values(("other", "g")))
    offsets = [group["topics"][0]["partitions"][0]["committed_offset"] for group in answer["groups"]]
    assert [group["group_id"] for group in answer["groups"]] == ["other", "g"]
    assert offsets == [-1, 10]


@pytest.mark.parametrize("version", versions(FETCH))
def test_offsets_of_a_consumer_group_are_fetched_without_naming_a_member(version: int) -> None:
    broker = FakeBroker()
    heartbeat = ConsumerHeartbeatRequest("g", "m", 0, topics=("orders",), owned={}, rebalance_timeout_ms=60_000)
    epoch = broker.groups.consumer_group_heartbeat(heartbeat).member_epoch
    call(broker, COMMIT, 9, **commit_values(member_id="m", generation_id_or_member_epoch=epoch))
    group = only_group(call(broker, FETCH, version, **fetch_values()), version)
    assert [part["committed_offset"] for part in group["topics"][0]["partitions"]] == [10, 11, -1]


def test_offsets_of_a_deleted_topic_are_not_returned_for_a_new_topic_with_its_name() -> None:
    broker = committed_broker()
    broker.topics["orders"] = Topic("orders", UUID(int=77), 2)
    group = only_group(call(broker, FETCH, 9, **fetch_values()), 9)
    assert [part["committed_offset"] for part in group["topics"][0]["partitions"]] == [-1, -1, -1]


def test_null_topics_leave_out_deleted_topics_from_version_10_on() -> None:
    broker = committed_broker()
    del broker.topics["orders"]
    assert only_group(call(broker, FETCH, 10, **fetch_values(everything=True)), 10)["topics"] == []
    assert len(only_group(call(broker, FETCH, 9, **fetch_values(everything=True)), 9)["topics"]) == 1


@pytest.mark.parametrize("version", range(7, 11))
def test_offset_in_an_open_transaction_is_unstable(version: int) -> None:
    broker = committed_broker()
    store = broker.groups.shard("g").offsets
    store.put_pending(4, OffsetKey("g", "orders", 0), OffsetAndMetadata(99, -1, "", 0))
    for stable, expected in ((True, ("unstable_offset_commit", -1)), (False, ("none", 10))):
        group = only_group(call(broker, FETCH, version, **fetch_values(require_stable=stable)), version)
        first = group["topics"][0]["partitions"][0]
        assert (first["error_code"], first["committed_offset"]) == expected
    store.end_transaction(4, commit=True)
    group = only_group(call(broker, FETCH, version, **fetch_values(require_stable=True)), version)
    assert group["topics"][0]["partitions"][0]["committed_offset"] == 99


@pytest.mark.parametrize("version", versions(FETCH))
def test_loading_coordinator_responds_load_in_progress(version: int) -> None:
    broker = FakeBroker()
    broker.groups.runtime.begin_loading([0])
    answer = call(broker, FETCH, version, **fetch_values())
    assert answer == error_answer(FETCH, version, ErrorCode.coordinator_load_in_progress, **fetch_values())
    group = only_group(answer, version)
    if version <= 1:
        codes = {part["error_code"] for topic in group["topics"] for part in topic["partitions"]}
        assert codes == {"coordinator_load_in_progress"}
    else:
        assert (group["error_code"], group["topics"]) == ("coordinator_load_in_progress", [])


@pytest.mark.parametrize("whole", [False, True], ids=["a group that is not here", "the request"])
def test_version_1_has_errors_of_partitions_only(whole: bool) -> None:
    count = 10 * PARTITIONS_PER_STEP
    values = fetch_values(topics=[{"name": "orders", "topic_id": None, "partition_indexes": list(range(count))}])
    broker = FakeBroker()
    broker.groups.shutdown()
    code = ErrorCode.coordinator_not_available
    answer = error_answer(FETCH, 1, code, **values) if whole else call(broker, FETCH, 1, **values)
    (topic,) = answer["topics"]
    told = [(part["partition_index"], part["error_code"]) for part in topic["partitions"]]
    assert told == [(index, code.name) for index in range(count)]


def fetch_groups(broker, topics, groups=("g",)):
    several = [{"group_id": name, "topics": topics, "member_id": None, "member_epoch": -1} for name in groups]
    return call(broker, FETCH, 8, groups=several, require_stable=False)["groups"]


def test_partition_named_more_than_once_has_one_result():
    broker = FakeBroker()
    call(broker, COMMIT, 8, **commit_values())
    topics = [{"name": "orders", "partition_indexes": [0, 1] * 2500 + list(range(3000))}] * 2
    (group,) = fetch_groups(broker, topics)
    (orders,) = group["topics"]
    assert [part["partition_index"] for part in orders["partitions"]] == list(range(3000))
    assert [part["committed_offset"] for part in orders["partitions"][:3]] == [10, 11, -1]
    assert orders["partitions"][0]["metadata"] == "note"


def test_group_with_null_topics_named_more_than_once_has_one_result():
    broker = FakeBroker()
    call(broker, COMMIT, 8, **commit_values())
    groups = fetch_groups(broker, None, ("g", "g", "h", "g"))
    assert [group["group_id"] for group in groups] == ["g", "h"]
    assert len(groups[0]["topics"]) == 1


def test_others_are_served_between_steps_of_many_partitions(monkeypatch):
    ended = count_time_slices(monkeypatch, offset_fetch)
    fetch_groups(FakeBroker(), [{"name": "orders", "partition_indexes": list(range(10 * PARTITIONS_PER_STEP))}])
    assert len(ended) == 10
