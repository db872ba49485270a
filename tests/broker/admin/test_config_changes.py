"""Changes to several resources, and changes that are only validated."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.admin_broker import send
from tests.broker.api.helpers.admin_scenario import (
    APPEND,
    BROKER,
    SET,
    TOPIC,
    alter,
    change,
    create,
    incremental,
    new_topic,
    replacing,
)


def test_validate_only_changes_no_configuration(broker):
    send(broker, create(new_topic("orders")))
    send(broker, incremental(change(TOPIC, "orders", ("retention.ms", SET, "5")), validate_only=True))
    send(broker, replacing(alter(TOPIC, "orders", retention_ms="5"), validate_only=True))
    send(broker, incremental(change(BROKER, "1", ("message.max.bytes", SET, "5")), validate_only=True))
    assert broker.topics.get("orders").configs == {}
    assert broker.log("orders", 0).config.retention_ms == -1
    assert broker.config.dynamic_broker == {}


@pytest.mark.parametrize(
    ("operations", "code", "said"),
    [
        ([("retention.ms", 9, "1")], ErrorCode.invalid_request, "Unknown operation 9"),
        ([("retention.ms", APPEND, "1")], ErrorCode.invalid_config, "Can't APPEND to key retention.ms"),
        ([("no.such", SET, "1")], ErrorCode.invalid_config, "Unknown topic config name: no.such"),
        ([("retention.ms", SET, "x")], ErrorCode.invalid_config, "Not a number of type LONG"),
    ],
)
def test_invalid_change_does_not_affect_other_resources(broker, operations, code, said):
    send(broker, create(new_topic("bad"), new_topic("good")))
    answer = send(
        broker, incremental(change(TOPIC, "bad", *operations), change(TOPIC, "good", ("retention.ms", SET, "5")))
    )
    bad, good = answer.responses
    assert (bad.error_code, good.error_code) == (code, ErrorCode.none)
    assert said in bad.error_message
    assert broker.topics.get("bad").configs == {}
    assert broker.topics.get("good").configs == {"retention.ms": "5"}
