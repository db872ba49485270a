"""From a frame to the pieces of its response: decode, call the handler, encode."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from broker.errors import BrokerError, MalformedRequest
from broker.protocol.api_registry import ConnectionInfo, registry
from broker.protocol.codec import api_name, decode_request, encode_response

_logger = logging.getLogger("kafkalog.broker")

Frame = bytes | memoryview
Dispatch = Callable[[Frame, ConnectionInfo], Awaitable[list[Any] | None]]
"""What a connection does with a frame. None: there is no response. It raises ConnectionClosed to end the connection."""


class ConnectionClosed(Exception):
    """The connection has to be closed; the text says why, in one line. `level` is the level of the log line."""

    def __init__(self, why: str, level: int = logging.WARNING) -> None:
        super().__init__(why)
        self.level = level


def dispatcher(broker: Any) -> Dispatch:
    """Serve the registered APIs with `broker` handed to the handlers."""
    apis = registry()

    async def dispatch(frame: Frame, connection: ConnectionInfo) -> list[Any] | None:
        try:
            request = decode_request(frame, connection)
        except MalformedRequest as error:
            raise ConnectionClosed(str(error)) from None
        api = apis[request.api_key]
        try:
            response = await api.handler(request, broker)
        except BrokerError as error:
            response = None if api.on_error is None else api.on_error(request, error.code)
            what = f"{api_name(request.api_key)} version {request.version} failed: {error.code.name}: {error}"
            if response is None:
                raise ConnectionClosed(what) from None
            _logger.debug("%s (%s)", what, connection)
        except Exception as error:
            raise _crashed("the handler", request.api_key, request.version, error) from error
        if response is None:
            return None
        try:
            return encode_response(request, response)
        except Exception as error:
            raise _crashed("the encoder", request.api_key, request.version, error) from error

    return dispatch


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
