"""From a frame to the pieces of its response: decode, call the handler, encode."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from inspect import isawaitable
from types import CoroutineType
from typing import Any, TypeVar

from kafkalog_broker.errors import BrokerError, MalformedRequest
from kafkalog_broker.net.large_requests import LARGE_BYTES, WAITING_APIS, LargeRequests
from kafkalog_broker.protocol.api_registry import Api, ConnectionInfo, Encoded, Request, registry
from kafkalog_broker.protocol.codec import (
    api_name,
    decode_in_steps,
    decode_one_batch,
    decode_request,
    encode_in_steps,
    encode_response,
    is_loaded,
    load,
)
from kafkalog_broker.protocol.frames import PRODUCE
from kafkalog_broker.protocol.request_steps import given_up
from kafkalog_broker.protocol.response_steps import is_large
from kafkalog_broker.runtime.turn import in_turns

_logger = logging.getLogger(__name__)

IN_STEPS_BYTES = 1024
"""Requests above it are read in steps: up to here kio's reader takes less than half a millisecond."""

PRODUCE_IN_STEPS_BYTES = 8192
"""The same of Produce, which is read by hand and mostly consists of records."""

R = TypeVar("R", Request, Request | None)

Frame = bytes | memoryview
Answer = list[Any] | None
"""The pieces of a response; None: there is none."""

Dispatch = Callable[[Frame, ConnectionInfo], Answer | Coroutine[Any, Any, Answer]]
"""What a connection does with a frame. A small request whose handler waits for nothing is answered at once, without a
coroutine, which would cost such a request 3 percent. It raises ConnectionClosed, at once or later, to end the
connection."""


class ConnectionClosed(Exception):
    """The connection has to be closed; the text says why, in one line. `level` is the level of the log line, `last` a
    response that is still to be written."""

    def __init__(self, why: str, level: int = logging.WARNING, last: list[Any] | None = None) -> None:
        super().__init__(why)
        self.level = level
        self.last = last


def dispatcher(broker: Any, served: Mapping[int, Api] | None = None) -> Dispatch:
    """Serve the registered APIs with `broker` handed to the handlers. served: others than those, looked at with each
    request."""
    apis, large = registry() if served is None else served, LargeRequests()

    def serve(frame: Frame, connection: ConnectionInfo) -> Answer | Coroutine[Any, Any, Answer]:
        request: Request | None
        if type(frame) is bytes and len(frame) <= IN_STEPS_BYTES and is_loaded(frame):
            request = _decoded(frame, connection)
        elif frame[:2] == PRODUCE and is_loaded(frame):
            # Nearly all of what producers send. To read it takes 3 us, however large the batch is.
            request = _decoded(frame, connection, decode_one_batch)
        else:
            request = None
        if request is None:
            return serve_in_steps(frame, connection)
        api = apis[request.api_key]
        try:
            response = api.handler(request, broker)
        except Exception as error:  # noqa: BLE001 - handled where one that waits raises it
            return _answer(request, api, _raising(error))
        if type(response) is Encoded:
            return _encoded(request, response)
        return None if response is None else _answer(request, api, response)

    async def serve_in_steps(
        frame: Frame, connection: ConnectionInfo, leave: Callable[[], None] | None = None
    ) -> Answer:
        size = len(frame)
        if size > LARGE_BYTES and leave is None and frame[:2] != PRODUCE:
            served = serve_large(frame, connection)
            del frame
            return await served
        if not is_loaded(frame):
            await asyncio.get_running_loop().run_in_executor(None, load, bytes(frame[:4]))
        if size <= IN_STEPS_BYTES or (size <= PRODUCE_IN_STEPS_BYTES and frame[:2] == PRODUCE):
            request = _decoded(frame, connection)
        else:
            try:
                request = await in_turns(decode_in_steps(frame, connection))
            except MalformedRequest as error:
                raise ConnectionClosed(str(error)) from None
            del frame
        if leave is not None and request.api_key in WAITING_APIS:
            leave()
        api = apis[request.api_key]
        pieces = await _answer(request, api, api.handled(request, broker))
        if leave is not None:
            await in_turns(given_up(request.entity))
        return pieces

    async def serve_large(frame: Frame, connection: ConnectionInfo) -> Answer:
        leave = await large.place(len(frame))
        try:
            served = serve_in_steps(frame, connection, leave)
            del frame
            return await served
        finally:
            leave()

    return serve


async def _answer(request: Request, api: Api, response: Any) -> Answer:
    """The pieces of what a handler has returned, which may be something to wait for."""
    try:
        if isawaitable(response):
            response = await response
    except BrokerError as error:
        response = None if api.on_error is None else api.on_error(request, error.code)
        if isawaitable(response):
            response = await response
        what = f"{api_name(request.api_key)} version {request.version} failed: {error.code.name}: {error}"
        if response is None:
            raise ConnectionClosed(what) from None
        _logger.debug("%s (%s)", what, request.connection)
    except ConnectionClosed:
        raise
    except Exception as error:
        raise _crashed("the handler", request.api_key, request.version, error) from error
    if response is None:
        return None
    if isinstance(response, Encoded) or not is_large(response):
        return _encoded(request, response)
    try:
        return await in_turns(encode_in_steps(request, response))
    except Exception as error:
        raise _crashed("the encoder", request.api_key, request.version, error) from error


def _decoded(
    frame: Frame, connection: ConnectionInfo, decode: Callable[[Frame, ConnectionInfo], R] = decode_request
) -> R:
    try:
        return decode(frame, connection)
    except MalformedRequest as error:
        raise ConnectionClosed(str(error)) from None


def _encoded(request: Request, response: Any) -> Answer:
    try:
        return encode_response(request, response)
    except Exception as error:
        raise _crashed("the encoder", request.api_key, request.version, error) from error


async def _raising(error: Exception) -> None:
    raise error


async def answer_of(served: Answer | Coroutine[Any, Any, Answer]) -> Answer:
    """What a Dispatch has returned, waited for where that is needed."""
    return await served if isinstance(served, CoroutineType) else served  # type: ignore[return-value]


def _crashed(who: str, api_key: int, version: int, error: Exception) -> ConnectionClosed:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    place = ""
    if traceback is not None:
        place = f" at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
    _logger.debug("%s of %s", who, api_name(api_key), exc_info=error)
    text = " ".join(str(error).split())
    return ConnectionClosed(
        f"{who} of {api_name(api_key)} version {version} raised {type(error).__name__}{place}: {text}", logging.ERROR
    )
