"""Others are served while a request with thousands of items is handled; what a coordinator does stays one step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkalog_broker.api import itemized_responses, load_all
from kafkalog_broker.api.groups import modern_group_description, offset_delete, offset_fetch
from kafkalog_broker.api.topics import metadata
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.offset_commit import PARTITIONS_PER_STEP
from kafkalog_broker.groups.offset_records import OffsetKey
from kafkalog_broker.groups.offset_requests import CommitRequest, CommittedPartition
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_broker.runtime import fair_scheduling
from kafkalog_broker.testing_support.client_requests import frame_of
from kafkalog_spark.format.names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from tests.broker.api.helpers.admin_scenario import create, new_topic
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.group_calls import COMMIT, OFFSET_DELETE, FakeBroker, call, commit_values, error_answer
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.groups.helpers.commits import commit_at_once

MANY = 1_600


@pytest.fixture
def turns(monkeypatch):
    """Count how often a request lets others run. `do`, if set, is called each time."""

    class Turns(list[int]):
        do: Any = None

    found = Turns()

    class Short(fair_scheduling.TimeSlice):
        is_over = property(lambda self: True)  # type: ignore[assignment]

        async def wait_turn(self) -> None:
            found.append(1)
            if found.do is not None:
                found.do()

    for module in (
        fair_scheduling,
        itemized_responses,
        modern_group_description,
        metadata,
        offset_delete,
        offset_fetch,
    ):
        monkeypatch.setattr(module, "TimeSlice", Short)
    return found


@pytest.fixture
def process(tmp_path):
    with BrokerInProcess(tmp_path / "data") as process:
        key, _, values = create(new_topic("t", 2))
        process.ask(request_entity(key, 7, values, {}))
        yield process


def commits(*numbers, offset=10):
    partitions = [
        {
            "partition_index": number,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": None,
        }
        for number in numbers
    ]
    return commit_values(topics=[{"name": "orders", "topic_id": None, "partitions": partitions}])


def test_offsets_are_committed_in_many_time_slices_and_one_batch(turns):
    broker = FakeBroker()
    batches = broker.world.log.batches
    turns.do = lambda: seen.append(sum(map(len, batches.values())))
    seen: list[int] = []
    answer = call(broker, COMMIT, 8, **commits(*[0, 1] * (MANY // 2)))
    assert {part["error_code"] for part in answer["topics"][0]["partitions"]} == {"none"}
    assert len(turns) == (MANY + 1) + MANY // PARTITIONS_PER_STEP, "made, answered"
    assert sorted(set(seen)) == [0, 1]
    assert len(broker.world.log.records()) == MANY, "as in Kafka, of which the last counts"


def test_later_commit_written_between_time_slices_is_overwritten(turns):
    """A commit that is handled between two time slices is written first, so the earlier request overwrites it."""
    broker = FakeBroker()

    def another() -> None:
        turns.do = None
        commit_at_once(broker.groups, CommitRequest("g", (CommittedPartition("orders", 0, 77),)))

    turns.do = another
    call(broker, COMMIT, 8, **commits(*[0] * MANY, offset=10))
    assert len(broker.world.log.records()) == 1 + MANY
    assert broker.groups.shard("g").offsets.get(OffsetKey("g", "orders", 0)).offset == 10


def test_each_partition_of_a_failed_commit_has_the_error():
    answer = error_answer(COMMIT, 8, ErrorCode.coordinator_not_available, **commits(*[0] * MANY))
    partitions = answer["topics"][0]["partitions"]
    assert [part["error_code"] for part in partitions] == ["coordinator_not_available"] * MANY


def test_offsets_named_more_than_once_are_deleted_once_in_steps(turns):
    broker = FakeBroker()
    broker.topics["orders"] = replace(broker.topics["orders"], partitions=MANY)
    call(broker, COMMIT, 8, **commits(*range(MANY)))
    del turns[:]
    named = [{"partition_index": number % MANY} for number in range(2 * MANY)]
    answer = call(broker, OFFSET_DELETE, 0, group_id="g", topics=[{"name": "orders", "partitions": named}])
    assert {part["error_code"] for part in answer["topics"][0]["partitions"]} == {"none"}
    assert len(turns) == (2 * MANY + 1) + MANY // offset_delete.PARTITIONS_PER_STEP
    assert sum(value is None for _, value in broker.world.log.records()) == MANY


def test_partitions_are_added_to_a_transaction_before_the_first_time_slice_ends(process, turns):
    process.run(process.broker.ensure_topic(TRANSACTION_TOPIC, 50, {}))
    process.run(process.broker.wait_for_producer_id())
    begun = process.broker.transactions.init_producer_id("x", 60_000, None)
    named = {
        "v3_and_below_transactional_id": "x",
        "v3_and_below_producer_id": begun.producer_id,
        "v3_and_below_producer_epoch": begun.epoch,
        "v3_and_below_topics": [{"name": "t", "partitions": [0, 1] * (MANY // 2)}],
    }
    open_ones = []
    turns.do = lambda: open_ones.append(len(process.broker.transactions.describe("x").partitions))
    (told,) = process.ask(request_entity(24, 3, named, {})).results_by_topic_v3_and_below
    assert {one.partition_error_code.name for one in told.results_by_partition} == {"none"}
    assert len(turns) == MANY + 1
    assert set(open_ones) == {2}


def test_offsets_of_a_transaction_are_committed_in_many_time_slices(process, turns):
    named = [
        {"partition_index": number % 3, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": None}
        for number in range(MANY)
    ]
    asked = {
        "transactional_id": "x", "group_id": "g", "producer_id": 7, "producer_epoch": 0, "generation_id": -1,
        "member_id": "", "group_instance_id": None, "topics": [{"name": "t", "partitions": named}],
    }  # fmt: skip
    (topic,) = process.ask(request_entity(28, 3, asked, {})).topics
    codes = [one.error_code.name for one in topic.partitions]
    assert set(codes[2::3]) == {"unknown_topic_or_partition"}
    assert len(set(codes)) == 2, "who has no transaction is refused for all that is there"
    there = sum(number % 3 < 2 for number in range(MANY))
    assert len(turns) >= (MANY + 1) + there // PARTITIONS_PER_STEP


def test_leaders_are_elected_in_many_time_slices(process, turns):
    asked = {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0] * MANY}], "timeout": 1000}
    (told,) = process.ask(request_entity(43, 2, asked, {})).replica_election_results
    assert {one.error_code.name for one in told.partition_result} == {"election_not_needed"}
    assert len(turns) == (MANY + 1)


def test_reassignments_are_checked_in_many_time_slices(process, turns):
    partitions = [{"partition_index": 0, "replicas": [process.broker.node_id]}] * MANY
    asked = {
        "timeout": 1000,
        "allow_replication_factor_change": True,
        "topics": [{"name": "t", "partitions": partitions}],
    }
    (told,) = process.ask(request_entity(45, 1, asked, {})).responses
    assert {one.error_code.name for one in told.partitions} == {"none"}
    assert len(turns) == (MANY + 1)


class Nothing:
    """Access without any right."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def authorization_error(self, name: str, *, quiet: bool = False) -> ErrorCode:
        self.asked.append(name)
        return ErrorCode.topic_authorization_failed

    def may(self, operation: Any, resource: Any, name: str | None, *, quiet: bool = False) -> bool:
        raise AssertionError("only the rights to topics are asked for")

    def operations(self, resource: Any, name: str) -> int:
        raise AssertionError("only the rights to topics are asked for")


def test_rights_to_all_topics_are_checked_in_many_time_slices(process, turns):
    values = {"topics": None, "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
              "include_topic_authorized_operations": False}  # fmt: skip
    process.run(process.broker.ensure_topic(TRANSACTION_TOPIC, 50, {}))
    process.run(process.broker.ensure_topic(OFFSETS_TOPIC, 50, {}))
    request = decode_request(frame_of(request_entity(3, 8, values, {})), ConnectionInfo())
    access = Nothing()
    request.access = access
    process.run(load_all()[3].respond(request, process.broker))
    assert sorted(access.asked) == [OFFSETS_TOPIC, TRANSACTION_TOPIC, "t"]
    assert len(turns) == len(access.asked)


NAMES = [f"name-{number}" for number in range(MANY)]
NAMED: dict[str, tuple[int, int, dict[str, Any], str]] = {
    "FindCoordinator": (10, 6, {"key_type": 0, "coordinator_keys": NAMES}, "coordinators"),
    "LeaveGroup": (13, 5, {"group_id": "g", "members": [
        {"member_id": name, "group_instance_id": None, "reason": None} for name in NAMES
    ]}, "members"),
    "DescribeGroups": (15, 6, {"groups": NAMES, "include_authorized_operations": False}, "groups"),
    "DeleteTopics": (20, 6, {"timeout": 0, "topics": [
        {"name": name, "topic_id": None} for name in NAMES
    ]}, "responses"),
    "DeleteGroups": (42, 2, {"groups_names": NAMES}, "results"),
    "DescribeUserScramCredentials": (50, 0, {"users": [{"name": name} for name in NAMES]}, "results"),
    "ConsumerGroupDescribe": (69, 1, {"group_ids": NAMES, "include_authorized_operations": False}, "groups"),
    "ShareGroupDescribe": (77, 1, {"group_ids": NAMES, "include_authorized_operations": False}, "groups"),
    "StreamsGroupDescribe": (89, 0, {"group_ids": NAMES, "include_authorized_operations": False}, "groups"),
}  # fmt: skip


@pytest.mark.parametrize("api_name", NAMED)
def test_others_are_served_between_two_names_of_a_request(process, turns, api_name):
    process.run(process.broker.ensure_topic(OFFSETS_TOPIC, 1, {}))
    key, version, values, array = NAMED[api_name]
    answer = process.ask(request_entity(key, version, values, {}))
    assert len(getattr(answer, array)) == MANY
    assert len(turns) >= MANY


def test_others_are_served_between_two_members_of_a_described_group(process, turns):
    process.run(process.broker.ensure_topic(OFFSETS_TOPIC, 1, {}))
    joining = {
        "group_id": "g", "member_epoch": 0, "instance_id": None, "rack_id": None, "rebalance_timeout": 60_000,
        "subscribed_topic_names": NAMES[:100], "subscribed_topic_regex": None, "server_assignor": None,
        "topic_partitions": [],
    }  # fmt: skip
    for number in range(30):
        process.ask(request_entity(68, 1, joining | {"member_id": f"m{number}"}, {}))
    del turns[:]
    describing = request_entity(69, 1, {"group_ids": ["g"], "include_authorized_operations": False}, {})
    request = decode_request(frame_of(describing), ConnectionInfo())
    (group,) = process.run(load_all()[69].respond(request, process.broker)).groups
    assert [len(member.subscribed_topic_names) for member in group.members] == [100] * 30
    assert len(turns) >= 30
    assert request.has_long_response, "so it is encoded in a thread"
