"""Metadata: partitions that are offline, topics that are made because somebody asks for them."""

from __future__ import annotations

import pytest

from kafkalog_broker.storage import topic as topic_module
from kafkalog_broker.storage import topic_registry
from kafkalog_spark.format import atomic_file
from tests.broker.api.helpers.admin_broker import AdminBroker
from tests.broker.api.helpers.admin_scenario import create, new_topic
from tests.broker.api.helpers.plain_entities import request_entity


def metadata(broker, *names, create_missing=True, version=12):
    topics = [{"name": name, "topic_id": None} for name in names] if names else None
    flags = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}
    values = {"topics": topics, "allow_auto_topic_creation": create_missing, **flags}
    return broker.ask(request_entity(3, version, values, {})).topics


@pytest.mark.parametrize("version", [0, 5, 9, 12])
def test_partition_in_a_failed_log_directory_has_no_leader(tmp_path, version):
    with AdminBroker(tmp_path / "a", tmp_path / "b") as broker:
        key, _, values = create(new_topic("orders", 4))
        broker.ask(request_entity(key, 7, values, {}))
        broker._dirs.all[0].fail(OSError(5, "I/O error"))
        (topic,) = metadata(broker, "orders", version=version)
        assert topic.error_code.name == "none"
        failed = [part for part in topic.partitions if part.error_code.name != "none"]
        assert len(failed) == 2
        assert {(part.error_code.name, int(part.error_code), part.leader_id) for part in failed} == {
            ("leader_not_available", 5, -1)
        }
        if version >= 5:
            assert {part.offline_replicas for part in failed} == {(broker.node_id,)}


@pytest.fixture
def broker(tmp_path):
    with AdminBroker(tmp_path / "data", **{"num.partitions": "2"}) as broker:
        yield broker


def test_missing_topics_are_created_in_one_write(broker, monkeypatch):
    written: list[bytes] = []

    def counted(path, data):
        written.append(data)
        atomic_file.replace_file(path, data)

    monkeypatch.setattr(topic_registry, "replace_file", counted)
    names = [f"t{n}" for n in range(20)]
    told = metadata(broker, *names, "t3", "a/b", "__consumer_offsets", "t.1", "t_1")
    assert [(topic.name, topic.error_code.name) for topic in told] == [
        *((name, "none") for name in names),
        ("t.1", "none"),
        ("a/b", "invalid_topic_exception"),
        ("__consumer_offsets", "unknown_topic_or_partition"),
        ("t_1", "unknown_topic_or_partition"),
    ]
    assert len(written) == 1
    assert len(broker.log("t7", 1).segments) == 1


def test_rule_about_names_applies_to_metadata_and_create_topics(broker, monkeypatch):
    """A rule of one's own is one edit: CreateTopics and topics that are made on demand ask the same function."""

    def valid(name):
        return not name.startswith("scratch-")

    monkeypatch.setattr(topic_module, "valid_topic_name", valid)
    (made_on_demand,) = metadata(broker, "scratch-1")
    key, _, values = create(new_topic("scratch-2", 1))
    (created,) = broker.ask(request_entity(key, 7, values, {})).topics
    assert {topic.error_code.name for topic in (made_on_demand, created)} == {"invalid_topic_exception"}
    assert not broker.topics.topics


def test_too_many_missing_topics_are_not_created(broker):
    told = metadata(broker, *(f"t{n}" for n in range(5001)))
    assert {topic.error_code.name for topic in told} == {"unknown_topic_or_partition"}
    assert len(broker.topics) == 0


def test_missing_topics_are_not_created_without_request(broker):
    (told,) = metadata(broker, "orders", create_missing=False)
    assert told.error_code.name == "unknown_topic_or_partition"
    assert len(broker.topics) == 0
