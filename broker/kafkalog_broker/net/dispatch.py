"""From a request frame to the pieces of its response: decode, call the handler, encode."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext, suppress
from inspect import isawaitable
from traceback import walk_tb
from types import CoroutineType
from typing import Any

from kafkalog_broker.coordinator.coordinator_errors import coordinator_error_code
from kafkalog_broker.coordinator.log_flushes import LogFlushes
from kafkalog_broker.errors import BrokerError, ErrorCode, MalformedRequest
from kafkalog_broker.net.request_reader import PRODUCE
from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.protocol.api_registry import Api, registry
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.message_codecs import is_loaded, load
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.request_decoding import decode_one_batch, decode_request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, fair_queue
from kafkalog_broker.runtime.memory_trim import IdleTrim
from kafkalog_broker.runtime.traffic import Traffic, codes_and_arrays
from kafkalog_broker.storage.partition.file_handles import FileSlice

SMALL_BYTES = 4096
"""Requests up to this size, and Produce requests of any size, are decoded immediately. Larger requests queue: in one
iteration of the event loop, one of them is decoded or its response encoded."""

LARGE_BYTES = 64 << 10
"""Size above which at most MAX_LARGE_REQUESTS requests are handled at a time: a ListOffsets of 4,000 partitions."""

MAX_LARGE_REQUESTS = 4
"""Limits memory, because a decoded request takes about ten times the bytes of its frame."""

UNCOUNTED_APIS = frozenset((1, 11, 14))
"""Fetch, JoinGroup and SyncGroup may wait for minutes, so they do not count towards MAX_LARGE_REQUESTS."""

LONG_ARRAY = 2_000
"""A response with a longer array at its top level is encoded in a thread, because even a small request may list all
topics or groups."""

SELF_COUNTING_APIS = (0, 1)
"""Produce and Fetch report errors to Traffic while they make their responses."""

SELF_FLUSHING_APIS = (0, 1)
"""Produce waits for the flushes that it depends on, and Fetch reads only below the high watermark."""

Frame = bytes | memoryview

Piece = bytes | bytearray | memoryview | FileSlice
"""Part of an encoded response. The bytes of a FileSlice are read while they are sent."""

ResponsePieces = Sequence[Piece] | None
"""An encoded response; None for a request without response (acks=0)."""

MaybeAwaitable = ResponsePieces | Coroutine[Any, Any, ResponsePieces]
"""A response, or a coroutine of one if something has to be awaited."""

Dispatch = Callable[[Frame, ConnectionInfo], MaybeAwaitable]
"""Handles a frame. If nothing has to be awaited, the response to a small request is returned without a coroutine, which
is faster. Raises ConnectionClosed, when called or when awaited, to end the connection."""

_logger = logging.getLogger(__name__)


class ConnectionClosed(Exception):
    """The connection has to be closed; the text is the reason, in one line.

    Attributes:
        level: Level of the log line.
        last_response: Response to write before the connection is closed, or None.
    """

    def __init__(self, why: str, level: int = logging.WARNING, last_response: ResponsePieces = None) -> None:
        super().__init__(why)
        self.level = level
        self.last_response = last_response


def dispatcher(
    broker: object, served: Mapping[int, Api] | None = None, traffic: Traffic | None = None,
    flushes: LogFlushes | None = None,
) -> Dispatch:  # fmt: skip
    """Return a function that handles the requests of all connections.

    Args:
        broker: Passed to the handlers; the dispatcher does not use it.
        served: APIs by key, looked up with each request; by default all that are registered.
        traffic: Counts the errors in responses.
        flushes: Flushes of coordinators' logs. While one of these logs has a record that is not on disk, responses of
            all APIs except SELF_FLUSHING_APIS wait, because even a response that only reads may depend on a record that
            another request or a timer has written.
    """
    apis = registry() if served is None else served
    unflushed: Mapping[Any, Any] = {} if flushes is None else flushes.registered
    large_requests = asyncio.Semaphore(MAX_LARGE_REQUESTS)
    idle_trim = IdleTrim(lambda trim: asyncio.get_running_loop().run_in_executor(None, trim))

    def serve(frame: Frame, connection: ConnectionInfo) -> MaybeAwaitable:
        request: Request | None
        if type(frame) is bytes and len(frame) <= SMALL_BYTES and is_loaded(frame):
            request = _decoded(frame, connection)
        elif frame[:2] == PRODUCE and is_loaded(frame):
            # Nearly all Produce requests have one batch, which is decoded in constant time.
            request = _decoded(frame, connection, decode_one_batch)
        else:
            request = None
        if request is None:
            return serve_queued(frame, connection)
        api = apis[request.api_key]
        try:
            response = api.handler(request, broker)
        except Exception as error:  # noqa: BLE001 - handled like an error of a handler that is awaited
            return _respond(request, api, _raising(error), traffic, flushes)
        if response is None:
            return None
        if unflushed and api.key not in SELF_FLUSHING_APIS:
            return _respond(request, api, response, traffic, flushes)
        if isinstance(response, tuple) or not (traffic or isawaitable(response) or _has_long_array(response)):
            return _encoded(request, response)
        return _respond(request, api, response, traffic, flushes)

    async def serve_queued(frame: Frame, connection: ConnectionInfo) -> ResponsePieces:
        if not is_loaded(frame):
            await asyncio.get_running_loop().run_in_executor(None, load, bytes(frame[:4]))
        is_queued = len(frame) > SMALL_BYTES and frame[:2] != PRODUCE
        is_large = is_queued and len(frame) > LARGE_BYTES
        async with large_requests if is_large and int.from_bytes(frame[:2]) not in UNCOUNTED_APIS else nullcontext():
            try:
                if is_queued:
                    await fair_queue().wait_turn()
                time_slice = TimeSlice()
                request = _decoded(frame, connection)
                del frame
                if is_queued and time_slice.is_over:  # the first step of the handler gets its own time slice
                    await time_slice.wait_turn()
                api = apis[request.api_key]
                handled = api.respond(request, broker)
                return await _respond(request, api, handled, traffic, flushes, queues_encoding=is_queued)
            finally:
                if is_large:
                    idle_trim.soon()

    return serve


async def response_of(served: MaybeAwaitable) -> ResponsePieces:
    """Return the response of a Dispatch, awaiting it if it is a coroutine."""
    return await served if isinstance(served, CoroutineType) else served  # type: ignore[return-value]


async def _respond(
    request: Request, api: Api, response: Any, traffic: Traffic | None, flushes: LogFlushes | None, *,
    queues_encoding: bool = False,
) -> ResponsePieces:  # fmt: skip
    """Await the result of a handler and the flushes that it depends on, then encode it.

    Args:
        request: The request.
        api: The API of the request.
        response: The handler's result, which may be awaitable.
        traffic: See `dispatcher`.
        flushes: See `dispatcher`.
        queues_encoding: Wait for a time slice before encoding.
    """
    if api.key in SELF_FLUSHING_APIS:
        flushes = None
    failures = 0 if flushes is None else flushes.failures
    try:
        if type(response) is CoroutineType or isawaitable(response):  # the first check is faster
            response = await response
        if flushes is not None and (flushes.registered or flushes.failures != failures):
            await _wait_for_flushes(flushes, failures)
        if traffic is not None and response is not None and api.key not in SELF_COUNTING_APIS:
            traffic.count_errors(api.key, response)
    except BrokerError as error:
        if traffic is not None and api.key not in SELF_COUNTING_APIS:
            traffic.count_failed_request(api.key, error.code)
        response = await api.respond_to_error(request, error.code)
        what = f"{api_name(request.api_key)} version {request.version} failed: {error.code.name}: {error}"
        if response is None:
            raise ConnectionClosed(what) from None
        _logger.debug("%s (%s)", what, request.connection)
        if flushes is not None:
            with suppress(BrokerError):  # the client gets an error in any case
                await flushes.flush_registered()
    except ConnectionClosed:
        raise
    except Exception as error:
        raise _defect("the handler", request.api_key, request.version, error) from error
    if response is None:
        return None
    if request.has_long_response or _has_long_array(response):
        return await asyncio.get_running_loop().run_in_executor(None, _encoded, request, response)
    if queues_encoding:
        await fair_queue().wait_turn()
    return _encoded(request, response)


async def _wait_for_flushes(flushes: LogFlushes, failures: int) -> None:
    """Wait until the records of coordinators are on disk.

    Args:
        flushes: The flushes.
        failures: Value of `flushes.failures` before the request.

    Raises:
        BrokerError: not_coordinator, as in Kafka if a coordinator's log fails. The client looks for the coordinator and
            retries.
    """
    try:
        await flushes.flush_registered()
    except BrokerError as error:
        raise BrokerError(coordinator_error_code(error.code), error.what) from error
    if flushes.failures != failures:
        raise BrokerError(
            ErrorCode.not_coordinator, "the log of a coordinator went offline before all its records were on disk"
        )


def _has_long_array(response: Any) -> bool:
    kind: Any = type(response)
    arrays = (getattr(response, name) for name in codes_and_arrays(kind)[1])
    return any(isinstance(value, tuple | list) and len(value) > LONG_ARRAY for value in arrays)


def _decoded(frame: Frame, connection: ConnectionInfo, decode: Callable[..., Any] = decode_request) -> Any:
    try:
        return decode(frame, connection)
    except MalformedRequest as error:
        raise ConnectionClosed(str(error)) from None


def _encoded(request: Request, response: Any) -> ResponsePieces:
    try:
        return encode_response(request, response)
    except Exception as error:
        raise _defect("the encoder", request.api_key, request.version, error) from error


async def _raising(error: Exception) -> None:
    raise error


def _defect(source: str, api_key: int, version: int, error: Exception) -> ConnectionClosed:
    """Return the error that closes the connection after a defect in `source`, with the line that raised it."""
    frames = list(walk_tb(error.__traceback__))
    line = f" at {frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""
    _logger.debug("%s of %s", source, api_name(api_key), exc_info=error)
    text = " ".join(str(error).split())
    return ConnectionClosed(
        f"{source} of {api_name(api_key)} version {version} raised {type(error).__name__}{line}: {text}", logging.ERROR
    )
