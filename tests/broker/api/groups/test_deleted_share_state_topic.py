"""Deleting __share_group_state deletes the state of share partitions, in memory too."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_broker.admin.topic_deletion import delete_topics
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.share.share_state import UNKNOWN_STATE, SharePartitionKey
from kafkalog_spark.format.names import SHARE_STATE_TOPIC
from tests.broker.api.helpers.broker_in_process import BrokerInProcess


def test_share_state_is_empty_after_the_topic_was_deleted(tmp_path: Path) -> None:
    with BrokerInProcess(tmp_path / "data", {"share.coordinator.state.topic.num.partitions": "1"}) as process:
        broker = process.broker
        process.run(broker.ensure_topic("orders", 1, {}))
        topic = broker.topics.get("orders")
        assert topic is not None
        key = SharePartitionKey("group", topic.id, 0)
        process.run(broker.ensure_internal_topic(SHARE_STATE_TOPIC))
        broker.share_coordinator.initialize(key, 1, 7)
        process.run(delete_topics(broker, [SHARE_STATE_TOPIC]))
        with pytest.raises(BrokerError) as refused:
            broker.share_coordinator.summary(key)
        assert refused.value.code is ErrorCode.coordinator_not_available
        process.run(broker.ensure_internal_topic(SHARE_STATE_TOPIC))
        assert broker.share_coordinator.summary(key) == UNKNOWN_STATE


def test_damaged_share_state_is_served_again_after_the_topic_was_deleted(tmp_path: Path) -> None:
    with BrokerInProcess(tmp_path / "data", {"share.coordinator.state.topic.num.partitions": "1"}) as process:
        broker = process.broker
        process.run(broker.ensure_topic("orders", 1, {}))
        topic = broker.topics.get("orders")
        assert topic is not None
        key = SharePartitionKey("group", topic.id, 0)
        process.run(broker.ensure_internal_topic(SHARE_STATE_TOPIC))
        broker.share_coordinator.initialize(key, 1, 7)
        path = next((tmp_path / "data").glob(f"{SHARE_STATE_TOPIC}-0/*.log"))
        batch = path.read_bytes()
        path.write_bytes(batch[:-1] + bytes([batch[-1] ^ 1]))
        broker.share_coordinator.runtime.unload(0)
        with pytest.raises(BrokerError) as refused:
            broker.share_coordinator.summary(key)
        assert refused.value.code is ErrorCode.not_coordinator
        process.run(delete_topics(broker, [SHARE_STATE_TOPIC]))
        process.run(broker.ensure_internal_topic(SHARE_STATE_TOPIC))
        assert broker.share_coordinator.summary(key) == UNKNOWN_STATE
