"""What a request repeats is looked up and answered once; an answer is bounded; others are served in between."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog_broker.admin import config_entries
from kafkalog_broker.api.configs import describe_configs
from kafkalog_broker.api.groups import offset_fetch
from kafkalog_broker.api.transactions import describe_producers, write_txn_markers
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.storage.append.append_validation import validate_batch
from tests.broker.api.helpers.admin_broker import AdminBroker
from tests.broker.api.helpers.admin_scenario import BROKER, TOPIC, create, new_topic
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.group_calls import COMMIT, FETCH, FakeBroker, call, commit_values
from tests.broker.api.helpers.plain_entities import request_entity
from tests.log.helpers.batch_builder import V2Record, batch


@pytest.fixture
def broker(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        key, _, values = create(*(new_topic(f"t{n}") for n in range(30)), new_topic("u", configs={"retention.ms": "7"}))
        broker.ask(request_entity(key, 7, values, {}))
        yield broker


def described(broker, *resources, version=4, synonyms=True, documentation=True):
    asked = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name, keys in resources
    ]
    values = {"resources": asked, "include_synonyms": synonyms, "include_documentation": documentation}
    return broker.ask(request_entity(32, version, values, {})).results


@pytest.fixture
def listed(monkeypatch):
    """The resources whose properties were listed."""
    found: list[Any] = []
    really = config_entries.resource_entries

    def counted(broker, kind, name):
        found.append((int(kind), name))
        return really(broker, kind, name)

    monkeypatch.setattr(describe_configs, "resource_entries", counted)
    return found


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_resource_that_is_named_thousands_of_times_is_described_once(broker, listed, version):
    """16 kB that named the broker 2,000 times took 13 s, and an answer of 57 MB."""
    resources = [(BROKER, "1", None), (TOPIC, "t3", ["retention.ms"])] * 1000 + [(BROKER, "1", [])]
    first, second = described(broker, *resources, version=version)
    assert (first.resource_name, second.resource_name, len(second.configs)) == ("1", "t3", 1)
    assert listed == [(BROKER, "1"), (TOPIC, "t3")]
    again = described(broker, (BROKER, "1", None), version=version)
    assert again == (first,)
    assert len(listed) == 2, "until the configuration changes"
    list(broker.updating_config(broker.config.with_dynamic({"log.retention.ms": "5"}, {})))
    (changed,) = described(broker, (BROKER, "1", None), version=version)
    assert [entry.value for entry in changed.configs if entry.name == "log.retention.ms"] == ["5"]


def test_topics_with_the_same_overrides_are_listed_once(broker, listed):
    names = [f"t{n}" for n in range(30)] + ["u"]
    results = described(broker, *((TOPIC, name, None) for name in names))
    assert [result.resource_name for result in results] == names
    assert [{e.name: e.value for e in r.configs}["retention.ms"] for r in results] == ["-1"] * 30 + ["7"]
    assert len(listed) == 2


def test_an_answer_of_configurations_is_bounded(broker, monkeypatch):
    monkeypatch.setattr(describe_configs, "MAX_RESPONSE_BYTES", 30_000)
    results = described(broker, *((TOPIC, f"t{n}", None) for n in range(30)))
    codes = [result.error_code for result in results]
    assert codes[0] is ErrorCode.none
    assert codes[-1] is ErrorCode.policy_violation
    assert sum(code is ErrorCode.none for code in codes) < 10


def fetch(broker, topics, groups=("g",)):
    several = [{"group_id": name, "topics": topics, "member_id": None, "member_epoch": -1} for name in groups]
    return call(broker, FETCH, 8, groups=several, require_stable=False)["groups"]


def test_partitions_of_a_group_are_answered_once_and_a_few_at_a_time():
    broker = FakeBroker()
    call(broker, COMMIT, 8, **commit_values())
    topics = [{"name": "orders", "partition_indexes": [0, 1] * 2500 + list(range(3000))}] * 2
    (group,) = fetch(broker, topics)
    (orders,) = group["topics"]
    assert [part["partition_index"] for part in orders["partitions"]] == list(range(3000))
    assert [part["committed_offset"] for part in orders["partitions"][:3]] == [10, 11, -1]
    assert orders["partitions"][0]["metadata"] == "note"


def test_everything_of_a_group_is_answered_once():
    broker = FakeBroker()
    call(broker, COMMIT, 8, **commit_values())
    groups = fetch(broker, None, ("g", "g", "h", "g"))
    assert [group["group_id"] for group in groups] == ["g", "h"]
    assert len(groups[0]["topics"]) == 1


def test_others_have_their_turn_while_offsets_are_fetched(monkeypatch):
    turns = always_over(monkeypatch, offset_fetch)
    fetch(FakeBroker(), [{"name": "orders", "partition_indexes": list(range(10 * offset_fetch.PARTITIONS_PER_STEP))}])
    assert len(turns) == 10


def always_over(monkeypatch, module):
    turns: list[int] = []

    class Short(module.TimeSlice):  # type: ignore[misc, name-defined]
        over = property(lambda self: True)

        async def next(self):
            turns.append(1)

    monkeypatch.setattr(module, "TimeSlice", Short)
    return turns


@pytest.fixture
def process(tmp_path):
    with BrokerInProcess(tmp_path / "data") as process:
        key, _, values = create(new_topic("t", 2))
        process.ask(request_entity(key, 7, values, {}))
        yield process


def append(process, partition=0, **fields):
    log, now = process.broker.log("t", partition), process.clock.now_ms()
    made = batch(0, [V2Record(0, now, None, b"v")], leader_epoch=-1, **fields)
    log.append(validate_batch(made, log.config, now), now)


def test_a_marker_is_written_into_a_partition_once(process, monkeypatch):
    for partition in range(2):
        append(process, partition, producer_id=7, producer_epoch=0, base_sequence=0, attributes=0x10)
    turns = always_over(monkeypatch, write_txn_markers)
    topics = [{"name": "t", "partition_indexes": [0] * 500 + [1]}, {"name": "t", "partition_indexes": [0, 9]}]
    marker = {"producer_id": 7, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    answer = process.ask(request_entity(27, 1, {"markers": [{**marker, "topics": topics}]}, {}))
    (told,) = answer.markers
    assert [(p.partition_index, p.error_code.name) for t in told.topics for p in t.partitions] == [
        (0, "none"),
        (1, "none"),
        (9, "unknown_topic_or_partition"),
    ]
    assert [process.broker.log("t", partition).log_end_offset for partition in range(2)] == [2, 2]
    assert len(turns) == 3


def test_the_producers_of_a_partition_are_described_once(process, monkeypatch):
    for producer_id in range(5):
        append(process, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    turns = always_over(monkeypatch, describe_producers)
    asked = {"topics": [{"name": "t", "partition_indexes": [0] * 300}, {"name": "t", "partition_indexes": [0, 1]}]}
    (topic,) = process.ask(request_entity(61, 0, asked, {})).topics
    assert [(part.partition_index, len(part.active_producers)) for part in topic.partitions] == [(0, 5), (1, 0)]
    assert len(turns) == 5 + 2
    monkeypatch.setattr(describe_producers, "MAX_PRODUCERS", 4)
    (topic,) = process.ask(request_entity(61, 0, asked, {})).topics
    assert [part.error_code.name for part in topic.partitions] == ["none", "policy_violation"]


def test_of_two_batches_for_one_partition_the_last_is_appended(process):
    """KafkaApis.handleProduceRequest keeps them in a map."""
    now = process.clock.now_ms()
    batches = [batch(0, [V2Record(0, now, None, value)], leader_epoch=-1) for value in (b"first", b"second", b"other")]
    entries = [(0, batches[0]), (1, batches[2]), (0, batches[1])]
    data = [{"name": "t", "partition_data": [{"index": index, "records": made}]} for index, made in entries]
    asked = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": data}
    answer = process.ask(request_entity(0, 9, asked, {}))
    told = [(p.index, p.error_code.name, p.base_offset) for t in answer.responses for p in t.partition_responses]
    assert told == [(0, "none", 0), (1, "none", 0)]
    log = process.broker.log("t", 0)
    assert log.log_end_offset == 1
    assert b"second" in b"".join(log.read_range(0, 1 << 20, up_to=1, at_least_one=True).chunks)


def test_acks_other_than_0_1_and_all_are_refused(process):
    now = process.clock.now_ms()
    data = [{"name": "t", "partition_data": [{"index": 0, "records": batch(0, [V2Record(0, now, None, b"v")])}]}]
    asked = {"transactional_id": None, "acks": 2, "timeout": 1000, "topic_data": data}
    answer = process.ask(request_entity(0, 9, asked, {}))
    (told,) = answer.responses[0].partition_responses
    assert told.error_code is ErrorCode.invalid_required_acks
    assert int(told.error_code) == 21
    assert process.broker.log("t", 0).log_end_offset == 0
