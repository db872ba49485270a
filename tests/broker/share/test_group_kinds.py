"""A group id has one type: members of other types are refused, as in Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog_broker.testing import RunningBroker, running_broker
from kafkalog_broker.testing_support.client_requests import ask
from tests.broker.api.helpers.plain_entities import request_entity

PROPERTIES = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(PROPERTIES, topics={"t": 1}) as running:
        while said(running, 10, 6, key_type=0, coordinator_keys=["seen"]).coordinators[0].error_code:
            pass
        yield running


def said(broker: RunningBroker, key: int, version: int, **values: Any) -> Any:
    with broker.connect() as connection:
        return ask(connection, request_entity(key, version, values, {}))


def share(broker: RunningBroker, group: str) -> str:
    answer = said(broker, 76, 1, group_id=group, member_id="m", member_epoch=0, subscribed_topic_names=["t"])
    return str(answer.error_code.name)


def consumer(broker: RunningBroker, group: str) -> str:
    answer = said(
        broker, 68, 1, group_id=group, member_id="m", member_epoch=0, subscribed_topic_names=["t"], topic_partitions=[],
        rebalance_timeout=60_000,
    )  # fmt: skip
    return str(answer.error_code.name)


def test_share_member_is_refused_by_a_consumer_group(broker: RunningBroker) -> None:
    assert consumer(broker, "a") == "none"
    assert share(broker, "a") == "group_id_not_found"


def test_consumer_member_is_refused_by_a_share_group(broker: RunningBroker) -> None:
    assert share(broker, "b") == "none"
    assert consumer(broker, "b") == "group_id_not_found"
