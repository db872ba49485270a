from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.group_calls import LEAVE, FakeBroker, call, error_answer, member, versions


@pytest.mark.parametrize("version", versions(LEAVE))
def test_member_leaves_in_every_version(version: int) -> None:
    broker = FakeBroker()
    me = member(broker)["member_id"]
    leaving = {"member_id": me, "group_instance_id": None, "reason": None}
    answer = call(broker, LEAVE, version, group_id="g", member_id=me, members=[leaving])
    assert answer["error_code"] == "none"
    if version >= 3:
        assert answer["members"] == [{"member_id": me, "group_instance_id": None, "error_code": "none"}]
    assert broker.world.state() == "Empty"


@pytest.mark.parametrize("version", versions(LEAVE))
def test_unknown_member_cannot_leave(version: int) -> None:
    stranger = {"member_id": "m", "group_instance_id": None, "reason": "bored"}
    answer = call(FakeBroker(), LEAVE, version, group_id="g", member_id="m", members=[stranger])
    codes = [answer["error_code"], *(one["error_code"] for one in answer.get("members", ()))]
    assert codes == (["unknown_member_id"] if version < 3 else ["none", "unknown_member_id"])


def test_error_of_the_whole_request_is_encoded() -> None:
    answer = error_answer(LEAVE, 5, ErrorCode.invalid_group_id, group_id="", members=[])
    assert answer == {"error_code": "invalid_group_id", "members": []}
