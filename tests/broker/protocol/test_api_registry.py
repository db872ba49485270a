from __future__ import annotations

from typing import Any

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api, on_error, registry
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request

pytestmark = pytest.mark.usefixtures("empty_registry")


async def handler(request: Request, broker: Any) -> None: ...


def answer(request: Request, code: ErrorCode) -> None: ...


def test_registered_api_is_served_in_its_versions() -> None:
    api(2, 1, 11)(handler)
    served = registry()[2]
    assert served.handler is handler
    assert [served.serves(version) for version in (0, 1, 11, 12)] == [False, True, True, False]


def test_second_registration_of_a_key_is_refused() -> None:
    api(2, 1, 11)(handler)
    with pytest.raises(ValueError, match="API key 2 is registered twice"):
        api(2, 1, 11)(handler)
    on_error(2)(answer)
    with pytest.raises(ValueError, match="two error handlers"):
        on_error(2)(answer)


def test_error_response_may_be_registered_before_or_after_the_handler() -> None:
    on_error(1)(answer)
    api(1, 4, 18)(handler)
    api(2, 1, 11)(handler)
    on_error(2)(answer)
    assert registry()[1].on_error is answer
    assert registry()[2].on_error is answer


def test_invalid_version_range_is_refused() -> None:
    with pytest.raises(ValueError, match="not a range"):
        api(2, 3, 1)(handler)


def test_lost_connection_calls_back_once() -> None:
    connection, called = ConnectionInfo(), []
    connection.on_close(lambda: called.append("kept"))
    undo = connection.on_close(lambda: called.append("undone"))
    undo()
    undo()
    for callback in connection.mark_closed():
        callback()
    assert called == ["kept"]
    assert connection.mark_closed() == []
    connection.on_close(lambda: called.append("late"))
    assert called == ["kept", "late"]


def test_broker_error_without_text_names_its_code() -> None:
    assert str(BrokerError(ErrorCode.not_leader_or_follower)) == "not_leader_or_follower"
    error = BrokerError(ErrorCode.offset_out_of_range, "7 is behind the end", topic_partition="t-0", offset=7)
    assert str(error) == "t-0 (offset 7): 7 is behind the end"
