from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.group_calls import JOIN, FakeBroker, call, error_answer, join, join_values, versions
from tests.broker.groups.helpers.virtual_time import subscription


@pytest.mark.parametrize("version", versions(JOIN))
def test_member_joins_in_every_version(version: int) -> None:
    broker = FakeBroker()
    answer = join(broker, version)
    told = {"member_id": "app-0", "metadata": subscription("orders")}
    if version >= 5:
        told["group_instance_id"] = None  # type: ignore[assignment]
    assert answer["error_code"] == "none"
    assert answer["members"] == [told]
    assert (answer["generation_id"], answer["leader"], answer["member_id"]) == (1, "app-0", "app-0")
    assert answer["protocol_name"] == "range"
    assert answer.get("protocol_type") == ("consumer" if version >= 7 else None)
    assert answer.get("skip_assignment") is (False if version >= 9 else None)


@pytest.mark.parametrize("version", versions(JOIN))
def test_member_id_is_required_from_version_4_on(version: int) -> None:
    answer = call(FakeBroker(), JOIN, version, **join_values())
    assert answer["error_code"] == ("member_id_required" if version >= 4 else "none")
    assert answer["member_id"] == "app-0"


def test_version_0_has_the_session_timeout_as_its_rebalance_timeout() -> None:
    broker = FakeBroker()
    join(broker, 0)
    (member,) = broker.world.group().members.values()
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 10_000)


def test_member_has_client_id_and_host() -> None:
    broker = FakeBroker()
    join(broker, 5)
    (member,) = broker.world.group().members.values()
    assert (member.client_id, member.client_host, member.rebalance_timeout_ms) == ("app", "/10.0.0.9", 60_000)


def test_response_waits_for_the_join_phase() -> None:
    from tests.broker.groups.helpers.virtual_time import World

    broker = FakeBroker(World(group_initial_rebalance_delay_ms=3000))
    answer = call(broker, JOIN, 3, advance_ms=3000, **join_values())
    assert answer["generation_id"] == 1


@pytest.mark.parametrize("version", versions(JOIN))
def test_error_is_encoded_in_every_version(version: int) -> None:
    answer = call(FakeBroker(), JOIN, version, **join_values(session_timeout=1))
    assert answer["error_code"] == "invalid_session_timeout"
    assert answer["protocol_name"] == (None if version >= 7 else "")
    assert error_answer(JOIN, version, ErrorCode.not_coordinator, **join_values())["error_code"] == "not_coordinator"
