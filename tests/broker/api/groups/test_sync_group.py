from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.group_calls import SYNC, FakeBroker, error_answer, join, sync, versions


@pytest.mark.parametrize("version", versions(SYNC))
def test_leader_gets_its_own_assignment(version: int) -> None:
    broker = FakeBroker()
    answer = sync(broker, version, join(broker, 7))
    expected: dict[str, object] = {"error_code": "none", "assignment": b"all"}
    if version >= 5:
        expected |= {"protocol_type": "consumer", "protocol_name": "range"}
    assert answer == expected


@pytest.mark.parametrize("version", versions(SYNC))
def test_error_has_an_empty_assignment(version: int) -> None:
    broker = FakeBroker()
    answer = sync(broker, version, join(broker, 7), generation_id=5)
    assert (answer["error_code"], answer["assignment"]) == ("illegal_generation", b"")


def test_protocol_is_checked_from_version_5_on() -> None:
    broker = FakeBroker()
    joined = join(broker, 7)
    assert sync(broker, 5, joined, protocol_name="other")["error_code"] == "inconsistent_group_protocol"
    assert sync(broker, 4, joined, protocol_name="other")["error_code"] == "none"


def test_error_of_the_whole_request_is_encoded() -> None:
    values = {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": []}
    assert error_answer(SYNC, 0, ErrorCode.unknown_server_error, **values)["error_code"] == "unknown_server_error"
