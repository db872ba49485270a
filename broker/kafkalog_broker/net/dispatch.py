"""From a frame to the pieces of its response: decode, call the handler, encode."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from inspect import isawaitable
from typing import Any

from kafkalog_broker.errors import BrokerError, MalformedRequest
from kafkalog_broker.net.large_requests import LARGE_BYTES, WAITING_APIS, LargeRequests
from kafkalog_broker.protocol.api_registry import ConnectionInfo, Encoded, registry
from kafkalog_broker.protocol.codec import (
    api_name,
    decode_in_steps,
    decode_request,
    encode_in_steps,
    encode_response,
    is_loaded,
    load,
)
from kafkalog_broker.protocol.frames import PRODUCE
from kafkalog_broker.protocol.request_steps import given_up
from kafkalog_broker.protocol.response_steps import is_large
from kafkalog_broker.turn import in_turns

_logger = logging.getLogger(__name__)

IN_STEPS_BYTES = 1024
"""Requests above it are read in steps: up to here kio's reader takes less than half a millisecond."""

PRODUCE_IN_STEPS_BYTES = 8192
"""The same of Produce, which is read by hand and mostly consists of records."""

Frame = bytes | memoryview
Dispatch = Callable[[Frame, ConnectionInfo], Coroutine[Any, Any, list[Any] | None]]
"""What a connection does with a frame. None: there is no response. It raises ConnectionClosed to end the connection."""


class ConnectionClosed(Exception):
    """The connection has to be closed; the text says why, in one line. `level` is the level of the log line, `last` a
    response that is still to be written."""

    def __init__(self, why: str, level: int = logging.WARNING, last: list[Any] | None = None) -> None:
        super().__init__(why)
        self.level = level
        self.last = last


def dispatcher(broker: Any) -> Dispatch:
    """Serve the registered APIs with `broker` handed to the handlers."""
    apis, large = registry(), LargeRequests()

    async def serve_large(frame: Frame, connection: ConnectionInfo) -> list[Any] | None:
        leave = await large.place(len(frame))
        try:
            served = serve(frame, connection, leave)
            del frame
            return await served
        finally:
            leave()

    async def serve(
        frame: Frame, connection: ConnectionInfo, leave: Callable[[], None] | None = None
    ) -> list[Any] | None:
        size = len(frame)
        if size > LARGE_BYTES and leave is None and frame[:2] != PRODUCE:
            served = serve_large(frame, connection)
            del frame
            return await served
        if not is_loaded(frame):
            await asyncio.get_running_loop().run_in_executor(None, load, bytes(frame[:4]))
        try:
            if size <= IN_STEPS_BYTES or (size <= PRODUCE_IN_STEPS_BYTES and frame[:2] == PRODUCE):
                request = decode_request(frame, connection)
            else:
                request = await in_turns(decode_in_steps(frame, connection))
                del frame
        except MalformedRequest as error:
            raise ConnectionClosed(str(error)) from None
        if leave is not None and request.api_key in WAITING_APIS:
            leave()
        api = apis[request.api_key]
        try:
            response = await api.handler(request, broker)
        except BrokerError as error:
            response = None if api.on_error is None else api.on_error(request, error.code)
            if isawaitable(response):
                response = await response
            what = f"{api_name(request.api_key)} version {request.version} failed: {error.code.name}: {error}"
            if response is None:
                raise ConnectionClosed(what) from None
            _logger.debug("%s (%s)", what, connection)
        except Exception as error:
            raise _crashed("the handler", request.api_key, request.version, error) from error
        if response is None:
            return None
        try:
            if isinstance(response, Encoded) or not is_large(response):
                pieces = encode_response(request, response)
            else:
                pieces = await in_turns(encode_in_steps(request, response))
        except Exception as error:
            raise _crashed("the encoder", request.api_key, request.version, error) from error
        if leave is not None:
            await in_turns(given_up(request.entity))
        return pieces

    return serve


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
