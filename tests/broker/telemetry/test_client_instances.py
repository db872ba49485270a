"""Client instances: their subscriptions, and when they are removed.

When an instance may push is compared with Kafka in tests/broker/api/test_admin_answers.py.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafkalog_broker.admin import client_metrics_changes
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.telemetry import client_instances
from kafkalog_broker.telemetry.client_instances import ClientInstances
from tests.broker.api.helpers.admin_scenario import CLIENT_METRICS, SET, change, incremental
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.manual_clock import ManualClock


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.subscriptions: dict[str, dict[str, str]] = {}
        self.instances = ClientInstances(self.clock.now_ms, 100, lambda: self.subscriptions)
        self.forgotten: list[UUID] = []
        self.instances.receiver = SimpleNamespace(forget=self.forgotten.append)  # type: ignore[assignment]

    def get(self, number: int, connection: ConnectionInfo | None = None, client_id: str | None = "me") -> Any:
        entity = SimpleNamespace(client_instance_id=UUID(int=number) if number else None)
        return self.instances.get(Request(71, 0, 1, client_id, entity, connection or ConnectionInfo()))


@pytest.fixture
def world() -> World:
    return World()


def test_instance_gets_all_metrics_and_the_shortest_interval_of_matching_subscriptions(world: World) -> None:
    world.subscriptions = {
        "one": {"metrics": "b.,a.", "interval.ms": "2000", "match": "client_id=m.*,client_software_name=java"},
        "two": {"metrics": "a.,c.", "interval.ms": "1000"},
        "part": {"metrics": "d.", "match": "client_id=m"},  # all of the id has to match
        "port": {"metrics": "e.", "match": "client_source_port=7,client_source_address=10.0.0.1"},
        "id": {"metrics": "f.", "match": "client_instance_id=AAAAAAAAAAAAAAAAAAAAAg"},
    }
    found = world.get(2, ConnectionInfo(host="10.0.0.1", port=7, software_name="java"))
    assert sorted(found.metrics) == ["a.", "b.", "c.", "e.", "f."]
    assert found.interval_ms == 1000
    assert world.get(3, client_id=None).metrics == ["a.", "c."]


def test_subscription_to_all_metrics_replaces_the_others(world: World) -> None:
    world.subscriptions = {"one": {"metrics": "a."}, "two": {"metrics": "*"}}
    assert world.get(2).metrics == ["*"]


def test_instances_are_removed_when_their_connection_closes(world: World) -> None:
    connection = ConnectionInfo()
    first, second = world.get(0, connection), world.get(0, connection)
    assert first.id != second.id
    assert len(connection._on_close) == 1  # however many ids it makes up
    for callback in connection.mark_closed():
        callback()
    assert world.forgotten == [first.id, second.id]
    assert len(world.instances) == 0
    assert world.instances._of_connection == {}


def test_instance_beyond_the_limit_of_a_connection_replaces_the_first(world: World) -> None:
    connection = ConnectionInfo()
    ids = [world.get(0, connection).id for _ in range(client_instances.MAX_INSTANCES_OF_CONNECTION + 2)]
    assert world.forgotten == ids[:2]
    assert len(world.instances) == client_instances.MAX_INSTANCES_OF_CONNECTION
    assert len(world.instances._of_connection[id(connection)]) == client_instances.MAX_INSTANCES_OF_CONNECTION


def test_attributes_of_an_instance_are_truncated(world: World) -> None:
    long = "x" * 32_000
    found = world.get(2, ConnectionInfo(software_name=long, software_version=long), client_id=long)
    assert max(map(len, found.attributes.values())) == client_instances.MAX_ATTRIBUTE


def test_instance_is_removed_after_the_expiry_time(world: World) -> None:
    world.subscriptions = {"often": {"interval.ms": "100"}}
    world.get(2)
    world.clock.advance(59_999)
    world.get(3)
    assert world.forgotten == []
    world.clock.advance(1)
    world.instances.remove_expired()
    assert world.forgotten == [UUID(int=2)]


def test_instances_beyond_the_limit_replace_the_oldest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_instances, "MAX_INSTANCES", 3)
    for number in range(2, 7):
        world.get(number)
    assert len(world.instances) == 3
    assert world.forgotten == [UUID(int=2), UUID(int=3)]


def test_second_get_within_the_interval_is_throttled(world: World) -> None:
    world.get(2)
    world.clock.advance(299_999)
    with pytest.raises(BrokerError) as caught:
        world.get(2)
    assert caught.value.code is ErrorCode.throttling_quota_exceeded
    world.clock.advance(1)
    world.get(2)


def test_instance_with_a_new_subscription_is_removed_for_pushes_that_are_still_read(world: World) -> None:
    connection = ConnectionInfo()
    pushing = world.get(2, connection)
    world.subscriptions = {"often": {"interval.ms": "100"}}
    assert world.get(2, connection).interval_ms == 100
    for callback in connection.mark_closed():
        callback()
    assert world.forgotten == [UUID(int=2)]
    assert pushing.is_removed


def test_subscriptions_beyond_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics_changes, "MAX_SUBSCRIPTIONS", 2)
    with BrokerInProcess(tmp_path) as process:
        for name, code in (("a", "none"), ("b", "none"), ("c", "policy_violation"), ("a", "none")):
            key, versions, values = incremental(change(CLIENT_METRICS, name, ("interval.ms", SET, "1000")))
            (answer,) = process.ask(request_entity(key, versions[-1], values, {})).responses
            assert answer.error_code.name == code
