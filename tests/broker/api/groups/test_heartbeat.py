from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.group_calls import HEARTBEAT, FakeBroker, call, error_answer, member, versions


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_heartbeat_reports_the_state_of_the_group(version: int) -> None:
    broker = FakeBroker()
    joined = member(broker)
    values = {"group_id": "g", "member_id": joined["member_id"], "group_instance_id": None}
    assert call(broker, HEARTBEAT, version, generation_id=1, **values) == {"error_code": "none"}
    assert call(broker, HEARTBEAT, version, generation_id=2, **values) == {"error_code": "illegal_generation"}


@pytest.mark.parametrize("version", [3, 4])
def test_replaced_static_member_is_fenced(version: int) -> None:
    broker = FakeBroker()
    old = member(broker, group_instance_id="i")
    member(broker, group_instance_id="i")
    values = {"group_id": "g", "member_id": old["member_id"], "group_instance_id": "i", "generation_id": 1}
    assert call(broker, HEARTBEAT, version, **values) == {"error_code": "fenced_instance_id"}


def test_error_of_the_whole_request_is_encoded() -> None:
    values = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    assert error_answer(HEARTBEAT, 0, ErrorCode.not_coordinator, **values) == {"error_code": "not_coordinator"}
