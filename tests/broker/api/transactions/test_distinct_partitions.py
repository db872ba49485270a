"""WriteTxnMarkers and DescribeProducers handle a partition once, however often a request names it."""

from __future__ import annotations

import pytest

from kafkalog_broker.api.transactions import describe_producers, write_txn_markers
from kafkalog_broker.storage.append.append_validation import validate_batch
from tests.broker.api.helpers.admin_scenario import create, new_topic
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.api.helpers.short_time_slices import count_time_slices
from tests.log.helpers.batch_builder import V2Record, batch


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


def test_marker_is_written_once_to_a_partition_named_more_than_once(process, monkeypatch):
    for partition in range(2):
        append(process, partition, producer_id=7, producer_epoch=0, base_sequence=0, attributes=0x10)
    ended = count_time_slices(monkeypatch, write_txn_markers)
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
    assert len(ended) == 3


def test_producers_of_a_partition_named_more_than_once_are_described_once(process, monkeypatch):
    for producer_id in range(5):
        append(process, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    ended = count_time_slices(monkeypatch, describe_producers)
    asked = {"topics": [{"name": "t", "partition_indexes": [0] * 300}, {"name": "t", "partition_indexes": [0, 1]}]}
    (topic,) = process.ask(request_entity(61, 0, asked, {})).topics
    assert [(part.partition_index, len(part.active_producers)) for part in topic.partitions] == [(0, 5), (1, 0)]
    assert len(ended) == 5 + 2
    monkeypatch.setattr(describe_producers, "MAX_PRODUCERS", 4)
    (topic,) = process.ask(request_entity(61, 0, asked, {})).topics
    assert [part.error_code.name for part in topic.partitions] == ["none", "policy_violation"]
