from __future__ import annotations

import json
import logging
import uuid

import pytest

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry_file import TOPICS_FILE, RegistryState, format_registry, parse_registry
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format.names import MAX_PARTITIONS
from tests.broker.storage.helpers.managed_logs import block_writing_aside
from tests.broker.storage.helpers.one_topic import OneTopicRegistry


def registry(*paths):
    for path in paths:
        path.mkdir(exist_ok=True)
    loaded = OneTopicRegistry([LogDirectory(path, "id") for path in paths])
    loaded.load()
    return loaded


def refused(code, call, *args):
    with pytest.raises(BrokerError) as caught:
        call(*args)
    assert caught.value.code.name == code
    return str(caught.value)


def test_topic_registry_after_a_crash_has_every_change(tmp_path):
    topics = registry(tmp_path)
    created = topics.create("orders", 3, {"retention.ms": "1000"})
    assert registry(tmp_path).get("orders") == created
    topics.add_partitions("orders", 5)
    assert registry(tmp_path).get("orders").partitions == 5
    topics.set_configs("orders", {"cleanup.policy": "compact"})
    assert registry(tmp_path).get("orders").configs == {"cleanup.policy": "compact"}
    topics.delete("orders")
    again = registry(tmp_path)
    assert "orders" not in again
    assert again.deleted == {created.id}
    again.forget_deleted([created.id])
    assert registry(tmp_path).deleted == frozenset()


def test_topic_registry_finds_topics_by_name_and_id(tmp_path):
    topics = registry(tmp_path)
    a, b = topics.create("a", 1), topics.create("b", 1)
    assert topics.by_id(a.id) is a
    assert topics.by_id(uuid.UUID(int=9)) is None
    assert list(topics) == [a, b]
    assert len(topics) == 2
    topics.delete("a")
    assert topics.by_id(a.id) is None
    assert topics.create("a", 1).id != a.id


def test_topic_registry_snapshot_is_unaffected_by_later_changes(tmp_path):
    topics = registry(tmp_path)
    topics.create("a", 1)
    seen = topics.topics
    topics.create("b", 1)
    assert list(seen) == ["a"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 250, "a\n"])
def test_create_topic_with_an_invalid_name_is_refused(tmp_path, name):
    assert "Topic name is invalid" in refused("invalid_topic_exception", registry(tmp_path).create, name, 1)


def test_invalid_topic_creation_is_refused_and_changes_nothing(tmp_path):
    topics = registry(tmp_path)
    topics.create("a.b", 1)
    before = (tmp_path / TOPICS_FILE).read_bytes()
    refused("topic_already_exists", topics.create, "a.b", 1)
    assert "collides with existing topic: a.b" in refused("invalid_topic_exception", topics.create, "a_b", 1)
    refused("invalid_partitions", topics.create, "c", 0)
    refused("invalid_partitions", topics.add_partitions, "a.b", 1)
    refused("unknown_topic_or_partition", topics.add_partitions, "c", 4)
    refused("unknown_topic_or_partition", topics.delete, "c")
    refused("unknown_topic_or_partition", topics.set_configs, "c", {})
    assert (tmp_path / TOPICS_FILE).read_bytes() == before


def test_registry_write_error_takes_the_directory_offline_and_keeps_all_topics(tmp_path):
    topics = registry(tmp_path / "a", tmp_path / "b")
    topics.create("one", 1)
    block_writing_aside(tmp_path / "a" / TOPICS_FILE)
    topics.create("two", 1)
    assert [log_dir.is_online for log_dir in topics._dirs] == [False, True]
    assert set(registry(tmp_path / "a", tmp_path / "b").topics) == {"one", "two"}
    assert set(registry(tmp_path / "b").topics) == {"one", "two"}


def test_registry_change_that_no_log_directory_can_store_is_not_applied(tmp_path):
    topics = registry(tmp_path)
    topics.create("one", 1)
    block_writing_aside(tmp_path / TOPICS_FILE)
    refused("kafka_storage_error", topics.create, "two", 1)
    assert set(topics.topics) == {"one"}


def test_damaged_registry_file_is_renamed_with_a_warning(tmp_path, caplog):
    registry(tmp_path).create("one", 1)
    whole = (tmp_path / TOPICS_FILE).read_bytes()
    (tmp_path / TOPICS_FILE).write_bytes(whole[:-9])
    with caplog.at_level(logging.WARNING):
        topics = registry(tmp_path)
    assert not topics.was_read
    assert TOPICS_FILE in caplog.text
    assert (tmp_path / (TOPICS_FILE + ".damaged")).read_bytes() == whole[:-9]


def test_damaged_registry_file_is_replaced_by_the_copy_of_another_log_directory(tmp_path):
    registry(tmp_path / "a", tmp_path / "b").create("one", 1)
    (tmp_path / "a" / TOPICS_FILE).write_bytes(b"")
    topics = registry(tmp_path / "a", tmp_path / "b")
    assert topics.was_read
    assert "one" in topics


def test_registry_file_of_a_later_version_fails_the_start(tmp_path):
    (tmp_path / TOPICS_FILE).write_text('{"version": 1}')
    with pytest.raises(UnsupportedFormat, match="version 1") as caught:
        registry(tmp_path)
    assert str(tmp_path) in str(caught.value)


STATE = RegistryState(
    7,
    {
        "orders": Topic("orders", uuid.UUID(int=1), 3, {"retention.ms": "1000"}),
        "a": Topic("a", uuid.UUID(int=2), 1),
    },
    frozenset({uuid.UUID(int=3)}),
)


def test_registry_state_is_parsed_as_written():
    assert parse_registry(format_registry(STATE)) == STATE


def test_registry_file_truncated_at_any_byte_is_damaged():
    data = format_registry(STATE)
    for size in range(len(data) - 1):  # the last byte is a line break
        with pytest.raises(CorruptFile):
            parse_registry(data[:size])


@pytest.mark.parametrize(
    "change",
    [
        {"generation": -1},
        {"generation": "7"},
        {"generation": True},
        {"topics": None},
        {"topics": [{}]},
        {"topics": [1]},
        {"topics": [{"name": "a/b", "id": "A" * 21 + "Q", "partitions": 1, "configs": {}}]},
        {"topics": [{"name": "a", "id": "short", "partitions": 1, "configs": {}}]},
        {"topics": [{"name": "a", "id": "A" * 21 + "Q", "partitions": 0, "configs": {}}]},
        {"topics": [{"name": "a", "id": "A" * 21 + "Q", "partitions": 1, "configs": []}]},
        {"topics": [{"name": "a", "id": "A" * 21 + "Q", "partitions": 1, "configs": {"k": 1}}]},
        {"topics": [{"name": "a", "id": "A" * 21 + "Q", "partitions": 1, "configs": {}}] * 2},
        {"topics": [{"name": n, "id": "A" * 21 + "Q", "partitions": 1, "configs": {}} for n in "ab"]},
        {"deleted": [1]},
        {"version": None},
    ],
)
def test_registry_file_with_invalid_values_is_damaged(change):
    content = json.loads(format_registry(STATE)) | change
    with pytest.raises(CorruptFile):
        parse_registry(json.dumps(content).encode())


def test_topic_name_collision_in_metrics_remains_after_one_of_two_topics_is_deleted(tmp_path):
    topics = registry(tmp_path)
    topics.register_found([Topic("a.b", uuid.uuid4(), 1), Topic("a_b", uuid.uuid4(), 1), Topic("c.d", uuid.uuid4(), 1)])
    topics.delete_all(["a_b"])
    assert "collides with existing topic: a.b" in refused("invalid_topic_exception", topics.create, "a_b", 1)
    topics.delete_all(["c.d"])
    topics.create("c_d", 1)


def test_topic_registry_without_a_free_descriptor_refuses_the_change_and_keeps_the_directory_online(
    tmp_path, monkeypatch
):
    topics = registry(tmp_path)
    topics.create("one", 1)

    def refuse(*_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("kafkalog_broker.storage.topic_registry.replace_file", refuse)
        refused("kafka_storage_error", topics.create, "two", 1)
    assert topics._dirs[0].is_online
    topics.create("three", 1)
    assert set(registry(tmp_path).topics) == {"one", "three"}


def test_registry_file_above_the_partition_limit_is_damaged():
    """Each partition becomes a path and an object, so a count of 2^31 in a file would exhaust the memory."""
    many = [Topic(name, uuid.uuid4(), MAX_PARTITIONS // 2 + 1) for name in ("a", "b")]
    with pytest.raises(CorruptFile, match=rf"the topics have {MAX_PARTITIONS + 2} partitions"):
        parse_registry(format_registry(RegistryState(1, {topic.name: topic for topic in many})))


def test_create_topic_above_the_partition_limit_is_refused(tmp_path):
    topics = registry(tmp_path)
    topics.create("a", MAX_PARTITIONS)
    refused("invalid_partitions", topics.create, "b", 1)
    assert set(topics.topics) == set(registry(tmp_path).topics) == {"a"}


def test_registry_file_with_too_deeply_nested_json_is_damaged():
    with pytest.raises(CorruptFile, match="the file is not JSON"):
        parse_registry(b"[" * 100_000)
