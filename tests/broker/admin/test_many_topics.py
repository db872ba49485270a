"""Requests with thousands of topics: one write of the registry, linear cost, and time slices for other requests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalog_broker.admin import (
    config_changes,
    new_partition_logs,
    partition_quota,
    topic_creation,
    topic_deletion,
    topic_validation,
)
from kafkalog_broker.api.topics.create_topics import create_topics
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.storage import topic_registry, topic_registry_file
from kafkalog_spark.format import atomic_file
from tests.broker.api.helpers.admin_broker import AdminBroker
from tests.broker.api.helpers.admin_scenario import (
    BROKER,
    SET,
    TOPIC,
    change,
    create,
    delete,
    incremental,
    more,
    new_topic,
    total,
)
from tests.broker.api.helpers.plain_entities import request_entity


@pytest.fixture
def broker(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def registry_writes(monkeypatch):
    """The contents that the topic registry was written with."""
    written: list[bytes] = []
    really = atomic_file.replace_file

    def counted(path, data):
        written.append(data)
        really(path, data)

    monkeypatch.setattr(topic_registry, "replace_file", counted)
    return written


@pytest.fixture
def turns_of_others(monkeypatch):
    """Turns of another coroutine while each step takes long."""
    taken: list[int] = []

    class Short(topic_creation.TimeSlice):  # type: ignore[name-defined]
        is_over = property(lambda self: True)

        async def wait_turn(self):
            taken.append(1)

    for module in (config_changes, new_partition_logs, partition_quota, topic_creation, topic_deletion):
        monkeypatch.setattr(module, "TimeSlice", Short)
    return taken


def ask(broker, step):
    key, versions, values = step
    return broker.ask(request_entity(key, versions[-1], values, {}))


class Name(str):
    """A name that counts how often it is compared with another."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Name.compared += 1
        return str.__eq__(self, other)


def codes(answer):
    results = getattr(answer, "results", None) or getattr(answer, "responses", None) or answer.topics
    return [result.error_code for result in results]


def test_request_for_many_topics_writes_the_registry_once(broker, registry_writes, turns_of_others):
    names = [f"topic-{n}" for n in range(40)]
    assert set(codes(ask(broker, create(*map(new_topic, names))))) == {ErrorCode.none}
    assert (len(registry_writes), len(broker.topics), len(broker.logs.partitions())) == (1, 40, 40)
    assert len(turns_of_others) >= 3 * 40
    assert set(codes(ask(broker, more(*(total(name, 2) for name in names))))) == {ErrorCode.none}
    assert (len(registry_writes), len(broker.logs.partitions())) == (2, 80)
    changes = [change(TOPIC, name, ("retention.ms", SET, "5")) for name in names]
    assert set(codes(ask(broker, incremental(*changes)))) == {ErrorCode.none}
    assert (len(registry_writes), broker.log("topic-7", 1).config.retention_ms) == (3, 5)
    del turns_of_others[:]
    assert set(codes(ask(broker, delete(*names)))) == {ErrorCode.none}
    assert len(turns_of_others) >= 2 * 40
    assert (len(registry_writes), len(broker.topics), broker.logs.partitions()) == (
        5,
        0,
        [],
    )  # gone, and their directories too
    assert broker.topics.deleted == frozenset()
    assert sorted(broker.groups.deleted_topics) == sorted(names)


def test_change_of_a_broker_property_yields_to_other_requests_between_topics(broker, turns_of_others):
    """Each topic's configuration is rebuilt twice: once to validate it, once to apply it."""
    names = [f"topic-{n}" for n in range(48)]
    ask(broker, create(*(new_topic(name, configs={"segment.ms": str(n + 1)}) for n, name in enumerate(names))))
    del turns_of_others[:]
    assert codes(ask(broker, incremental(change(BROKER, "", ("log.retention.ms", SET, "5"))))) == [ErrorCode.none]
    assert len(turns_of_others) == 1 + 48 + 48
    assert {broker.log(name, 0).config.retention_ms for name in names} == {5}
    assert broker.log("topic-9", 0).config.segment_ms == 10


def test_unchanged_lines_of_the_registry_are_not_formatted_again(broker, monkeypatch):
    ask(broker, create(*(new_topic(f"topic-{n}") for n in range(50))))
    made: list[Any] = []
    really = topic_registry_file.format_topic

    def counted(topic):
        made.append(topic.name)
        return really(topic)

    monkeypatch.setattr(topic_registry, "format_topic", counted)
    ask(broker, create(new_topic("another")))
    ask(broker, more(total("topic-3", 2)))
    assert made == ["another", "topic-3"]


@pytest.mark.parametrize("step", ["create", "validate", "delete", "more", "configs"])
def test_number_of_name_comparisons_is_linear(broker, monkeypatch, step):
    """Counting each name in the list of all names would be quadratic."""
    names = [Name(f"topic-{n}") for n in range(300)]
    key, versions, values = {
        "create": create(*(new_topic(name, 0) for name in names)),
        "validate": create(*(new_topic(name) for name in names), validate_only=True),
        "delete": delete(*names),
        "more": more(*(total(name, 5) for name in names)),
        "configs": incremental(*(change(TOPIC, name, ("retention.ms", SET, "5")) for name in names)),
    }[step]
    entity = request_entity(key, versions[-1], values, {})
    for _, topic in zip(names, _named(entity), strict=True):
        for field in ("name", "resource_name"):
            if hasattr(topic, field):
                object.__setattr__(topic, field, Name(getattr(topic, field)))
    Name.compared = 0
    broker.ask(entity)
    assert Name.compared < 20 * len(names)


def _named(entity):
    return getattr(entity, "resources", None) or entity.topics


def test_cost_of_checking_an_assignment_is_linear(broker):
    looked: list[int] = []

    class Index(int):
        __hash__ = int.__hash__

        def __eq__(self, other):
            looked.append(1)
            return int.__eq__(self, other)

    assignments = [topic_validation.PartitionAssignment(Index(n), [broker.node_id]) for n in range(1000)]
    new = topic_validation.NewTopic("t", assignments=assignments)
    valid = topic_validation.validate_new_topic(broker, new, topic_validation.log_configs(broker))
    assert valid.partitions == 1000
    assert len(looked) < 5000


def test_default_number_of_partitions_counts_towards_the_request_limit(tmp_path):
    """ReplicationControlManager.validateTotalNumberOfPartitions."""
    with AdminBroker(tmp_path / "data", **{"num.partitions": "4000"}) as broker:
        answer = ask(broker, create(*(new_topic(name, -1) for name in "abc")))
        assert set(codes(answer)) == {ErrorCode.policy_violation}
        assert len(broker.topics) == 0


def test_request_adds_at_most_ten_thousand_partitions(broker):
    ask(broker, create(new_topic("a"), new_topic("b"), new_topic("c")))
    answer = ask(broker, more(total("a", 6_001), total("b", 6_001), total("c", 4_001), validate_only=True))
    assert codes(answer) == [ErrorCode.none, ErrorCode.policy_violation, ErrorCode.none]


def test_only_the_topic_without_all_logs_is_removed(broker, tmp_path):
    (tmp_path / "data" / "b-1").write_text("in the way")
    answer = ask(broker, create(*(new_topic(name, 3) for name in "abc")))
    assert codes(answer) == [ErrorCode.none, ErrorCode.kafka_storage_error, ErrorCode.none]
    assert sorted(broker.topics.topics) == ["a", "c"]
    assert len(broker.logs.partitions()) == 6
    (tmp_path / "data" / "c-4").write_text("in the way")
    answer = ask(broker, more(total("a", 5), total("c", 5)))
    assert codes(answer) == [ErrorCode.none, ErrorCode.kafka_storage_error]
    assert [broker.topics.get(name).partitions for name in "ac"] == [5, 3]


def test_second_of_two_colliding_names_in_a_request_is_refused(broker):
    answer = ask(broker, create(new_topic("a.b"), new_topic("a_b"), new_topic("c")))
    assert codes(answer) == [ErrorCode.none, ErrorCode.invalid_topic_exception, ErrorCode.none]
    ask(broker, delete("a.b"))
    assert codes(ask(broker, create(new_topic("a_b")))) == [ErrorCode.none]


def test_each_topic_has_the_error_if_the_registry_cannot_be_written(broker, monkeypatch):
    ask(broker, create(new_topic("a")))

    def failed(path, data):
        raise OSError(28, "no space")

    monkeypatch.setattr(topic_registry, "replace_file", failed)
    assert codes(ask(broker, delete("a", "x"))) == [ErrorCode.kafka_storage_error] * 2
    assert codes(ask(broker, create(new_topic("b")))) == [ErrorCode.kafka_storage_error]


def test_detaching_a_deleted_topic_keeps_the_logs_of_a_new_one_with_its_name(broker):
    ask(broker, create(new_topic("a")))
    old = broker.topics.get("a")
    ask(broker, delete("a"))
    ask(broker, create(new_topic("a")))
    assert not broker.logs.detach_topic(old).entries
    assert broker.log("a", 0).topic_id != old.id


def test_topics_with_equal_overrides_share_their_encoded_configuration(broker):
    asked = [new_topic(f"t{n}") for n in range(20)] + [new_topic("u", configs={"retention.ms": "7"})]
    key, versions, values = create(*asked, validate_only=True)
    request = Request(key, versions[-1], 1, "c", request_entity(key, versions[-1], values, {}), ConnectionInfo())
    answer: Any = asyncio.run(create_topics(request, broker))
    assert len({id(topic.configs) for topic in answer.topics}) == 2
