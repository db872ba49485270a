from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.group_calls import (
    COMMIT,
    LIST,
    FakeBroker,
    call,
    commit_values,
    error_answer,
    member,
    versions,
)


def two_groups() -> FakeBroker:
    broker = FakeBroker()
    member(broker)
    call(broker, COMMIT, 9, **commit_values("simple"))
    return broker


@pytest.mark.parametrize("version", versions(LIST))
def test_all_groups_are_listed(version: int) -> None:
    answer = call(two_groups(), LIST, version, states_filter=[], types_filter=[])
    names = {group["group_id"]: group["protocol_type"] for group in answer["groups"]}
    assert names == {"g": "consumer", "simple": ""}
    if version >= 4:
        assert {group["group_state"] for group in answer["groups"]} == {"Stable", "Empty"}
    if version >= 5:
        assert {group["group_type"] for group in answer["groups"]} == {"classic"}


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        (["stable"], [], ["g"]),
        (["Stable", "EMPTY"], [], ["g", "simple"]),
        (["Dead"], [], []),
        ([], ["Classic"], ["g", "simple"]),
        ([], ["consumer"], []),
        (["Empty"], ["classic"], ["simple"]),
    ],
)
def test_groups_are_filtered_by_state_and_type(states: list[str], types: list[str], expected: list[str]) -> None:
    answer = call(two_groups(), LIST, 5, states_filter=states, types_filter=types)
    assert sorted(group["group_id"] for group in answer["groups"]) == expected


def test_incomplete_list_is_an_error() -> None:
    broker = two_groups()
    broker.groups.runtime.begin_loading([3])
    with pytest.raises(Exception, match="still being read"):
        call(broker, LIST, 0)
    answer = error_answer(LIST, 0, ErrorCode.coordinator_load_in_progress)
    assert answer == {"error_code": "coordinator_load_in_progress", "groups": []}
