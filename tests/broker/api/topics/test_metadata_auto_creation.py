"""Metadata creates missing topics if the request and the broker allow it."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.admin_broker import AdminBroker, only_result, send
from tests.broker.api.helpers.admin_scenario import create, metadata, new_topic


@pytest.fixture
def broker(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        yield broker


def test_missing_topic_with_a_valid_name_is_created(broker):
    answer = send(broker, metadata(["new", "a/b"], create_missing=True))
    by_name = {topic.name: topic for topic in answer.topics}
    assert by_name["new"].error_code is ErrorCode.none
    assert by_name["new"].partitions[0].leader_id == 1
    assert by_name["a/b"].error_code is ErrorCode.invalid_topic_exception
    assert set(broker.topics.topics) == {"new"}


def test_topic_that_is_not_requested_or_collides_or_is_internal_is_not_created(broker):
    send(broker, create(new_topic("a.b")))
    for wanted, create_missing in ((["x"], False), (["a_b"], True), (["__consumer_offsets"], True)):
        topic = only_result(send(broker, metadata(wanted, create_missing=create_missing)))
        assert topic.error_code is ErrorCode.unknown_topic_or_partition
    assert set(broker.topics.topics) == {"a.b"}


def test_old_versions_create_topics_if_the_broker_allows_it(tmp_path):
    for allowed in ("true", "false"):
        with AdminBroker(tmp_path / allowed, **{"auto.create.topics.enable": allowed, "num.partitions": "2"}) as broker:
            topic = only_result(send(broker, metadata(["new"]), 3))
            assert (topic.error_code is ErrorCode.none) == (allowed == "true")
            assert len(topic.partitions) == (2 if allowed == "true" else 0)
