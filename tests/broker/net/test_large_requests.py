"""Large requests wait undecoded for memory, in order of arrival."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.net import dispatch as dispatch_module
from kafkalog_broker.net.dispatch import LARGE_BYTES, MAX_LARGE_REQUESTS, dispatcher, response_of
from kafkalog_broker.net.response_writer import SMALL_BYTES
from kafkalog_broker.protocol import api_registry
from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime import memory_trim
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.memory_trim import IdleTrim
from tests.broker.net.helpers.fakes import in_a_loop, settle


@pytest.mark.parametrize("waits", [False, True], ids=["an API that answers at once", "one that may wait for others"])
@in_a_loop
async def test_large_requests_are_decoded_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    monkeypatch.setattr(api_registry, "_APIS", {})
    monkeypatch.setattr(api_registry, "_ERROR_HANDLERS", {})
    if waits:
        monkeypatch.setattr(dispatch_module, "UNCOUNTED_APIS", frozenset((12,)))
    gate = asyncio.get_running_loop().create_future()
    in_work = 0

    async def handle(request: Request, broker: Any) -> Any:
        nonlocal in_work
        in_work += 1
        await gate
        return response_class(12, request.version)(error_code=ErrorCode.none)

    api(12, 0, 4)(handle)
    # What comes after a body is ignored, as in Kafka.
    frame = struct.pack(">hhih", 12, 0, 7, -1) + struct.pack(">h1sih", 1, b"g", 1, 0) + bytes(2 * LARGE_BYTES)
    dispatch = dispatcher(None)
    tasks = [asyncio.ensure_future(response_of(dispatch(frame, ConnectionInfo()))) for _ in range(50)]
    small = asyncio.ensure_future(response_of(dispatch(frame[:100], ConnectionInfo())))
    while in_work < (51 if waits else 1 + MAX_LARGE_REQUESTS):
        await asyncio.sleep(0)
    await settle()
    assert in_work == (51 if waits else 1 + MAX_LARGE_REQUESTS)
    gate.set_result(None)
    assert await small == await tasks[0]
    assert len(await asyncio.gather(*tasks)) == 50


@in_a_loop
async def test_free_memory_is_returned_after_an_idle_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, trimmed = asyncio.get_running_loop(), list[float]()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    trim = IdleTrim(lambda work: work(), lambda: trimmed.append(loop.time()))

    async def later(periods: float) -> None:
        nonlocal now
        now += periods * memory_trim.TRIM_AFTER_S
        await settle()

    trim.soon()
    first = trim._timer
    await later(0.6)
    trim.soon()
    due = trim._due
    assert trim._timer is first, "one timer, however often there is work"
    await later(0.6)
    assert trimmed == []
    await later(0.6)
    assert len(trimmed) == 1
    assert trimmed[0] >= due
    await later(2)
    assert len(trimmed) == 1
    trim.soon()
    trim.cancel()
    await later(2)
    assert len(trimmed) == 1


@in_a_loop
async def test_request_that_takes_long_to_read_is_handled_in_a_later_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_registry, "_APIS", {})
    monkeypatch.setattr(api_registry, "_ERROR_HANDLERS", {})
    steps: list[str] = []

    class Short(TimeSlice):
        is_over = property(lambda self: True)  # type: ignore[assignment]

        async def wait_turn(self) -> None:
            steps.append("others")

    def handle(request: Request, broker: Any) -> Any:
        steps.append("handled")
        return response_class(12, request.version)(error_code=ErrorCode.none)

    monkeypatch.setattr(dispatch_module, "TimeSlice", Short)
    api(12, 0, 4)(handle)
    frame = struct.pack(">hhih", 12, 0, 7, -1) + struct.pack(">h1sih", 1, b"g", 1, 0)
    dispatch = dispatcher(None)
    for size, expected in ((0, ["handled"]), (SMALL_BYTES, ["others", "handled"])):
        await response_of(dispatch(frame + bytes(size), ConnectionInfo()))
        assert steps == expected
        steps.clear()
