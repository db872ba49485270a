"""DeleteRecords refuses topics whose records clients may not delete."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.admin_broker import AdminBroker, only_result, send
from tests.broker.api.helpers.admin_scenario import DELETE_RECORDS, create, new_topic, records


@pytest.fixture
def broker(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        yield broker


def test_records_of_compacted_and_internal_topics_cannot_be_deleted(broker):
    send(broker, create(new_topic("compacted", configs={"cleanup.policy": "compact"}), new_topic("__consumer_offsets")))
    for name, code in (
        ("compacted", ErrorCode.policy_violation),
        ("__consumer_offsets", ErrorCode.invalid_topic_exception),
    ):
        step = (DELETE_RECORDS, (2,), {"topics": [records(name, p0=-1)], "timeout": 1})
        assert only_result(send(broker, step)).partitions[0].error_code is code
