from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.group_calls import (
    COMMIT,
    DELETE,
    FakeBroker,
    call,
    commit_values,
    error_answer,
    member,
    versions,
)


@pytest.mark.parametrize("version", versions(DELETE))
def test_empty_groups_are_deleted_with_their_offsets(version: int) -> None:
    broker = FakeBroker()
    member(broker)
    call(broker, COMMIT, 9, **commit_values("simple"))
    answer = call(broker, DELETE, version, groups_names=["simple", "g", "unknown", "simple"])
    assert {result["group_id"]: result["error_code"] for result in answer["results"]} == {
        "simple": "none", "g": "non_empty_group", "unknown": "group_id_not_found",
    }  # fmt: skip
    assert len(answer["results"]) == 3
    broker.world.crash()
    assert [group.group_id for group in broker.groups.list_groups()] == ["g"]
    assert broker.world.state("simple") == "Dead"
    assert broker.world.state() == "Stable"
    assert len(broker.groups.shard("g").offsets) == 0


def test_error_of_the_whole_request_is_encoded() -> None:
    answer = error_answer(DELETE, 2, ErrorCode.not_coordinator, groups_names=["g"])
    assert answer == {"results": [{"group_id": "g", "error_code": "not_coordinator"}]}
