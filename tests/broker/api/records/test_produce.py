"""Produce requests with several batches for a partition, and with invalid acks."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.admin_scenario import create, new_topic
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.log.helpers.batch_builder import V2Record, batch


@pytest.fixture
def process(tmp_path):
    with BrokerInProcess(tmp_path / "data") as process:
        key, _, values = create(new_topic("t", 2))
        process.ask(request_entity(key, 7, values, {}))
        yield process


def test_last_of_two_batches_for_one_partition_is_appended(process):
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


def test_acks_other_than_0_1_and_minus_1_are_refused(process):
    now = process.clock.now_ms()
    data = [{"name": "t", "partition_data": [{"index": 0, "records": batch(0, [V2Record(0, now, None, b"v")])}]}]
    asked = {"transactional_id": None, "acks": 2, "timeout": 1000, "topic_data": data}
    answer = process.ask(request_entity(0, 9, asked, {}))
    (told,) = answer.responses[0].partition_responses
    assert told.error_code is ErrorCode.invalid_required_acks
    assert int(told.error_code) == 21
    assert process.broker.log("t", 0).log_end_offset == 0
