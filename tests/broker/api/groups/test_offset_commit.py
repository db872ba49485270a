from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.offset_records import OffsetKey
from tests.broker.api.helpers.group_calls import COMMIT, FakeBroker, call, commit_values, error_answer, member, versions


def codes(answer: dict[str, object]) -> list[list[str]]:
    topics = answer["topics"]
    assert isinstance(topics, list)
    return [[part["error_code"] for part in topic["partitions"]] for topic in topics]


@pytest.mark.parametrize("version", versions(COMMIT))
def test_existing_partitions_are_committed_and_the_others_have_errors(version: int) -> None:
    broker = FakeBroker()
    answer = call(broker, COMMIT, version, **commit_values())
    missing = "unknown_topic_or_partition"
    assert codes(answer) == [["none", "none", missing], ["unknown_topic_id" if version >= 10 else missing]]
    committed = broker.groups.shard("g").offsets.get(OffsetKey("g", "orders", 0))
    assert (committed.offset, committed.metadata, committed.topic_id) == (10, "note", broker.topics["orders"].id)
    assert committed.leader_epoch == (3 if version >= 6 else -1)
    assert broker.groups.shard("g").offsets.get(OffsetKey("g", "orders", 1)).metadata == ""


@pytest.mark.parametrize("version", [2, 3, 4])
def test_retention_time_is_stored_with_the_offset(version: int) -> None:
    broker = FakeBroker()
    call(broker, COMMIT, version, **commit_values(retention_time=5000))
    committed = broker.groups.shard("g").offsets.get(OffsetKey("g", "orders", 0))
    assert committed.expire_timestamp_ms == committed.commit_timestamp_ms + 5000


def test_version_0_commit_to_a_group_with_members_is_refused() -> None:
    """Version 0 has no generation and member ID, which the commit of a member needs."""
    broker = FakeBroker()
    member(broker)
    assert codes(call(broker, COMMIT, 0, **commit_values()))[0][:2] == ["unknown_member_id"] * 2


@pytest.mark.parametrize("named", [-1, 1_000])
def test_version_1_may_have_the_timestamp_of_each_commit(named: int) -> None:
    broker = FakeBroker()
    values = commit_values()
    values["topics"][0]["partitions"][0]["commit_timestamp"] = named
    call(broker, COMMIT, 1, **values)
    first, second = (broker.groups.shard("g").offsets.get(OffsetKey("g", "orders", part)) for part in (0, 1))
    now = second.commit_timestamp_ms
    assert now > 1_000
    assert first.commit_timestamp_ms == (now if named == -1 else named)
    assert (first.expire_timestamp_ms, second.expire_timestamp_ms) == (-1, -1)


@pytest.mark.parametrize("version", versions(COMMIT)[1:])
def test_unknown_group_has_another_error_code_from_version_9_on(version: int) -> None:
    answer = call(FakeBroker(), COMMIT, version, **commit_values(generation_id_or_member_epoch=3, member_id="m"))
    assert codes(answer)[0][0] == ("group_id_not_found" if version >= 9 else "illegal_generation")


def test_member_commits_in_its_generation() -> None:
    broker = FakeBroker()
    joined = member(broker)
    mine = {"generation_id_or_member_epoch": 1, "member_id": joined["member_id"]}
    assert codes(call(broker, COMMIT, 8, **commit_values(**mine)))[0][:2] == ["none", "none"]
    late = mine | {"generation_id_or_member_epoch": 0}
    assert codes(call(broker, COMMIT, 8, **commit_values(**late)))[0][:2] == ["illegal_generation"] * 2
    assert codes(call(broker, COMMIT, 8, **commit_values()))[0][:2] == ["unknown_member_id"] * 2


def test_failed_append_is_an_error_of_every_partition() -> None:
    broker = FakeBroker()
    broker.world.log.failure = ErrorCode.kafka_storage_error
    answer = call(broker, COMMIT, 9, **commit_values())
    assert codes(answer)[0] == ["not_coordinator", "not_coordinator", "unknown_topic_or_partition"]


def test_request_without_partitions_commits_nothing() -> None:
    broker = FakeBroker()
    assert call(broker, COMMIT, 9, **commit_values(topics=[])) == {"topics": []}
    assert broker.world.log.records() == []


@pytest.mark.parametrize("version", versions(COMMIT))
def test_error_of_the_whole_request_is_encoded(version: int) -> None:
    answer = error_answer(COMMIT, version, ErrorCode.not_coordinator, **commit_values())
    assert codes(answer) == [["not_coordinator"] * 3, ["not_coordinator"]]
