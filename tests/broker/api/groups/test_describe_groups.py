from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.group_calls import DESCRIBE, FakeBroker, call, error_answer, join, member, versions
from tests.broker.groups.helpers.virtual_time import subscription


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_stable_group_is_described_with_its_members(version: int) -> None:
    broker = FakeBroker()
    joined = member(broker)
    answer = call(broker, DESCRIBE, version, groups=["g"], include_authorized_operations=True)
    (group,) = answer["groups"]
    assert (group["error_code"], group["group_id"], group["group_state"]) == ("none", "g", "Stable")
    assert (group["protocol_type"], group["protocol_data"]) == ("consumer", "range")
    (one,) = group["members"]
    assert (one["member_id"], one["client_id"], one["client_host"]) == (joined["member_id"], "app", "/10.0.0.9")
    assert (one["member_metadata"], one["member_assignment"]) == (subscription("orders"), b"all")
    if version >= 3:
        assert group["authorized_operations"] == 0b1101_0100_1000


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_unknown_group_is_dead(version: int) -> None:
    (group,) = call(FakeBroker(), DESCRIBE, version, groups=["g"], include_authorized_operations=False)["groups"]
    assert (group["group_state"], group["members"]) == ("Dead", [])
    assert group["error_code"] == ("group_id_not_found" if version >= 6 else "none")
    if version >= 6:
        assert group["error_message"] == "Group g not found."
    if version >= 3:
        assert group["authorized_operations"] == -(2**31)


def test_group_between_generations_has_no_protocol() -> None:
    broker = FakeBroker()
    join(broker, 7)
    (group,) = call(broker, DESCRIBE, 5, groups=["g"], include_authorized_operations=False)["groups"]
    assert (group["group_state"], group["protocol_data"]) == ("CompletingRebalance", "")
    assert [one["member_metadata"] for one in group["members"]] == [b""]


def test_error_of_the_whole_request_is_encoded() -> None:
    values = {"groups": ["g"], "include_authorized_operations": False}
    (group,) = error_answer(DESCRIBE, 6, ErrorCode.not_coordinator, **values)["groups"]
    assert (group["error_code"], group["group_id"]) == ("not_coordinator", "g")
