from __future__ import annotations

import logging
import struct
import threading
from datetime import timedelta
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.net import dispatch as dispatch_module
from kafkalog_broker.net.dispatch import ConnectionClosed, ResponsePieces, dispatcher, response_of
from kafkalog_broker.protocol import api_registry, message_codecs
from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from tests.broker.net.helpers.fakes import in_a_loop

HEARTBEAT = struct.pack(">hhih", 12, 0, 7, -1) + struct.pack(">h1sih", 1, b"g", 1, 0)


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_registry, "_APIS", {})
    monkeypatch.setattr(api_registry, "_ERROR_HANDLERS", {})


class Answer(NamedTuple):
    error_code: int


def heartbeat() -> Request:
    return Request(12, 0, 7, None, None, ConnectionInfo())


async def dispatch(frame: bytes | memoryview, broker: Any = None) -> ResponsePieces:
    return await response_of(dispatcher(broker)(frame, ConnectionInfo()))


def heartbeat_answer(request: Request, code: ErrorCode) -> Any:
    return response_class(12, request.version)(error_code=code)


@in_a_loop
async def test_handler_gets_request_and_broker_and_its_response_is_framed() -> None:
    async def handle(request: Request, broker: Any) -> Any:
        assert request.entity.group_id == "g"
        return broker

    api(12, 0, 4)(handle)
    assert await dispatch(HEARTBEAT, Answer(25)) == [struct.pack(">iih", 6, 7, 25)]


@in_a_loop
async def test_handler_may_be_a_plain_function() -> None:
    async def later(answer: Any) -> Any:
        return answer

    def handle(request: Request, broker: Any) -> Any:
        if isinstance(broker, BrokerError):
            raise broker
        return broker

    api(12, 0, 4)(handle)
    on_error(12)(heartbeat_answer)
    await dispatch(HEARTBEAT, None)  # it is loaded from here on
    framed = [struct.pack(">iih", 6, 7, 25)]
    assert dispatcher(Answer(25))(HEARTBEAT, ConnectionInfo()) == framed  # without a coroutine
    assert dispatcher(None)(HEARTBEAT, ConnectionInfo()) is None
    assert await dispatch(memoryview(HEARTBEAT), Answer(25)) == framed
    assert await dispatch(HEARTBEAT, later(Answer(25))) == framed
    assert await dispatch(HEARTBEAT, heartbeat_answer(heartbeat(), ErrorCode.none)) == [struct.pack(">iih", 6, 7, 0)]
    refused = [struct.pack(">iih", 6, 7, ErrorCode.unknown_member_id)]
    assert await dispatch(HEARTBEAT, BrokerError(ErrorCode.unknown_member_id, "no such member")) == refused


@in_a_loop
async def test_broker_error_becomes_the_error_response_of_the_api() -> None:
    async def handle(request: Request, broker: Any) -> Any:
        raise BrokerError(ErrorCode.unknown_member_id, "no such member")

    api(12, 0, 4)(handle)
    on_error(12)(heartbeat_answer)
    assert await dispatch(HEARTBEAT) == [struct.pack(">iih", 6, 7, ErrorCode.unknown_member_id)]


@pytest.mark.parametrize("registered", [False, True])
@in_a_loop
async def test_broker_error_without_an_error_response_closes_the_connection(registered: bool) -> None:
    async def handle(request: Request, broker: Any) -> Any:
        raise BrokerError(ErrorCode.unknown_member_id, "no such member")

    api(12, 0, 4)(handle)
    if registered:
        on_error(12)(lambda request, code: None)
    with pytest.raises(ConnectionClosed, match="Heartbeat version 0 failed: unknown_member_id: no such member"):
        await dispatch(HEARTBEAT)


@in_a_loop
async def test_unexpected_exception_closes_the_connection_and_is_logged_with_its_location() -> None:
    async def handle(request: Request, broker: Any) -> Any:
        raise RuntimeError("first\nsecond line")

    api(12, 0, 4)(handle)
    with pytest.raises(
        ConnectionClosed,
        match=r"^the handler of Heartbeat version 0 raised RuntimeError at .*test_dispatch.py:\d+: first second line$",
    ) as caught:
        await dispatch(HEARTBEAT)
    assert caught.value.level == logging.ERROR


@in_a_loop
async def test_response_that_cannot_be_encoded_closes_the_connection() -> None:
    async def handle(request: Request, broker: Any) -> Any:
        return response_class(12, 1)(error_code=ErrorCode.none, throttle_time=timedelta(0))

    api(12, 0, 4)(handle)
    with pytest.raises(ConnectionClosed, match="the encoder of Heartbeat version 0 raised TypeError"):
        await dispatch(HEARTBEAT)


@in_a_loop
async def test_handler_that_returns_none_sends_no_response() -> None:
    async def handle(request: Request, broker: Any) -> Any:
        return None

    api(12, 0, 4)(handle)
    assert await dispatch(HEARTBEAT) is None


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"", "no room for a request header"),
        (struct.pack(">hhih", 4711, 0, 1, -1), "API key 4711 version 0 is not served"),
        (struct.pack(">hhih", 12, 5, 1, -1), "Heartbeat version 5 is not served, only 0 to 4"),
        (HEARTBEAT[:-1], "Heartbeat version 0: it ends early"),
    ],
)
@in_a_loop
async def test_malformed_request_closes_the_connection(frame: bytes, message: str) -> None:
    async def handle(request: Request, broker: Any) -> Any:
        raise AssertionError

    api(12, 0, 4)(handle)
    with pytest.raises(ConnectionClosed, match=message):
        await dispatch(frame)


@in_a_loop
async def test_modules_of_an_api_version_are_loaded_once_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[bool] = []

    def load(frame: bytes) -> None:
        loads.append(threading.current_thread() is threading.main_thread())
        message_codecs.load(frame)

    monkeypatch.setattr(dispatch_module, "load", load)

    async def handle(request: Request, broker: Any) -> Any:
        return heartbeat_answer(request, ErrorCode.none)

    api(12, 0, 4)(handle)
    with patch.dict(message_codecs.loaded_codecs, clear=True):
        for _ in range(3):
            assert await dispatch(HEARTBEAT) == [struct.pack(">iih", 6, 7, 0)]
    assert loads == [False]


class Flushes:
    """As LogFlushes: flushing ends the wait, or raises `error`. flushed: how often."""

    def __init__(self, error: BrokerError | None = None) -> None:
        self.registered = {"log": None}
        self.failures, self.flushed, self.error = 0, 0, error

    async def flush_registered(self) -> None:
        self.flushed += 1
        if self.error is not None:
            raise self.error
        self.registered.clear()


async def flushed_dispatch(frame: bytes, broker: Any, flushes: Any) -> ResponsePieces:
    return await response_of(dispatcher(broker, flushes=flushes)(frame, ConnectionInfo()))


@pytest.mark.parametrize("waits", [False, True])
@in_a_loop
async def test_response_waits_while_a_log_of_a_coordinator_is_unflushed(waits: bool) -> None:
    async def later(answer: Any) -> Any:
        return answer

    api(12, 0, 4)(lambda request, broker: later(broker) if waits else broker)
    on_error(12)(heartbeat_answer)
    framed = [struct.pack(">iih", 6, 7, 25)]
    assert await dispatch(HEARTBEAT, Answer(25)) == framed
    flushes = Flushes()
    assert await flushed_dispatch(HEARTBEAT, Answer(25), flushes) == framed
    assert await flushed_dispatch(HEARTBEAT, Answer(25), flushes) == framed
    assert flushes.flushed == 1, "the second response has nothing to wait for"


@in_a_loop
async def test_response_is_an_error_when_the_flush_fails_or_failed_while_it_was_made() -> None:
    api(12, 0, 4)(lambda request, broker: broker)
    on_error(12)(heartbeat_answer)
    refused = [struct.pack(">iih", 6, 7, ErrorCode.not_coordinator)]
    failing = Flushes(BrokerError(ErrorCode.kafka_storage_error, "gone"))
    await dispatch(HEARTBEAT, Answer(0))
    assert await flushed_dispatch(HEARTBEAT, Answer(0), failing) == refused
    flushes = Flushes()
    flushes.registered.clear()

    async def fails_meanwhile() -> Any:
        flushes.failures += 1
        return Answer(0)

    assert await flushed_dispatch(HEARTBEAT, fails_meanwhile(), flushes) == refused
    assert await flushed_dispatch(HEARTBEAT, Answer(0), flushes) == [struct.pack(">iih", 6, 7, 0)]


@in_a_loop
async def test_error_response_waits_for_the_records_of_the_request() -> None:
    api(12, 0, 4)(lambda request, broker: dispatch_module._raising(broker))
    on_error(12)(heartbeat_answer)
    flushes = Flushes()
    error = BrokerError(ErrorCode.concurrent_transactions, "an abort was prepared")
    answer = await flushed_dispatch(HEARTBEAT, error, flushes)
    assert answer == [struct.pack(">iih", 6, 7, ErrorCode.concurrent_transactions)]
    assert not flushes.registered
