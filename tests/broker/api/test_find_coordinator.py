from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.group_calls import FIND, FakeBroker, call, error_answer, versions


def values(key_type: int = 0) -> dict[str, object]:
    return {"key": "g", "key_type": key_type, "coordinator_keys": ["g", "h"]}


@pytest.mark.parametrize("version", versions(FIND))
def test_this_broker_coordinates_every_group(version: int) -> None:
    broker = FakeBroker()
    answer = call(broker, FIND, version, **values())  # type: ignore[arg-type]
    here = {"node_id": 7, "host": "broker.example", "port": 9092, "error_code": "none"}
    if version >= 4:
        assert answer == {"coordinators": [here | {"key": key, "error_message": ""} for key in ("g", "h")]}
    else:
        assert answer == here | ({"error_message": "NONE"} if version >= 1 else {})
    assert broker.created == [("__consumer_offsets", 50, "compact")]
    call(broker, FIND, version, **values())  # type: ignore[arg-type]
    assert broker.created == [("__consumer_offsets", 50, "compact")]


@pytest.mark.parametrize("version", versions(FIND))
def test_there_is_no_coordinator_without_its_topic(version: int) -> None:
    answer = call(FakeBroker(refuses=ErrorCode.policy_violation), FIND, version, **values())  # type: ignore[arg-type]
    for told in answer.get("coordinators", [answer]):
        assert (told["error_code"], told["node_id"], told["host"], told["port"]) == (
            "coordinator_not_available", -1, "", -1,
        )  # fmt: skip


@pytest.mark.parametrize("version", [version for version in versions(FIND) if version >= 1])
def test_this_broker_coordinates_every_transactional_id(version: int) -> None:
    broker = FakeBroker()
    for _ in range(2):
        answer = call(broker, FIND, version, **values(1))  # type: ignore[arg-type]
        assert {told["error_code"] for told in answer.get("coordinators", [answer])} == {"none"}
        assert broker.created == [("__transaction_state", 50, "compact")]


def test_other_coordinators_are_refused() -> None:
    answer = call(FakeBroker(), FIND, 6, **values(2))  # type: ignore[arg-type]
    assert {told["error_code"] for told in answer["coordinators"]} == {"invalid_request"}
    assert error_answer(FIND, 0, ErrorCode.not_controller, **values())["error_code"] == "not_controller"
