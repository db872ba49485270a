"""From a request frame to the pieces of its response: decode, call the handler, encode."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
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
from kafkalog_broker.protocol.frames import decode_one_batch, decode_request, encode_response, is_loaded, load
from kafkalog_broker.protocol.request import ConnectionInfo, Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, fair_queue
from kafkalog_broker.runtime.memory_trim import IdleTrim
from kafkalog_broker.runtime.traffic import Traffic, codes_and_arrays

SMALL_BYTES = 4096
"""Requests up to this size are decoded immediately, in at most 2 ms; Produce requests of any size are. Larger requests
queue: one of them is decoded, or its response encoded, in an iteration of the event loop."""

LARGE_BYTES = 64 << 10
"""Size of a ListOffsets of 4,000 partitions. Of requests above it, MAX_LARGE_REQUESTS are handled at a time."""

MAX_LARGE_REQUESTS = 4
"""A decoded request takes about ten times its bytes: fifty requests of 240 kB at a time took 300 MB."""

UNCOUNTED_APIS = frozenset((1, 11, 14))
"""Fetch, JoinGroup and SyncGroup may wait for minutes, so they do not count towards MAX_LARGE_REQUESTS."""

LONG_ARRAY = 2_000
"""A response with a longer array at its top level is encoded in a thread: a small request may list everything."""

COUNT_THEMSELVES = (0, 1)  # Produce and Fetch report errors to Traffic while they make their responses

FLUSH_THEMSELVES = (0, 1)
"""Produce waits for the flushes that it depends on, and Fetch reads only below the high watermark."""

Frame = bytes | memoryview
Answer = list[Any] | None
"""Pieces of a response, bytes-like or FileSlice; None for a request without response (acks=0)."""

Dispatch = Callable[[Frame, ConnectionInfo], Answer | Coroutine[Any, Any, Answer]]
"""Handles a frame. A small request whose handler awaits nothing gets its response without a coroutine, which is 3
percent faster. Raises ConnectionClosed, when called or when awaited, to end the connection."""

_logger = logging.getLogger(__name__)


class ConnectionClosed(Exception):
    """The connection has to be closed; the text is the reason, in one line.

    level: level of the log line.
    last: response that is still to be written, or None.
    """

    def __init__(self, why: str, level: int = logging.WARNING, last: list[Any] | None = None) -> None:
        super().__init__(why)
        self.level = level
        self.last = last


def dispatcher(
    broker: Any, served: Mapping[int, Api] | None = None, traffic: Traffic | None = None,
    flushes: LogFlushes | None = None,
) -> Dispatch:  # fmt: skip
    """Return a function that handles the requests of all connections.

    Args:
        broker: Passed to the handlers.
        served: APIs by key, looked up with each request; by default all that are registered.
        traffic: Counts the errors in responses.
        flushes: Flushes of coordinators' logs. While one of these logs has a record that is not on disk, responses of
            all APIs but FLUSH_THEMSELVES wait, because a response that only reads may depend on a record that another
            request or a timer has written.
    """
    apis = registry() if served is None else served
    unflushed: Mapping[Any, Any] = {} if flushes is None else flushes.registered
    large_requests = asyncio.Semaphore(MAX_LARGE_REQUESTS)
    idle_trim = IdleTrim(lambda trim: asyncio.get_running_loop().run_in_executor(None, trim))

    def serve(frame: Frame, connection: ConnectionInfo) -> Answer | Coroutine[Any, Any, Answer]:
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
            return _answer(request, api, _raising(error), traffic, flushes)
        if response is None:
            return None
        if unflushed and api.key not in FLUSH_THEMSELVES:
            return _answer(request, api, response, traffic, flushes)
        if isinstance(response, tuple) or not (traffic or isawaitable(response) or _has_long_array(response)):
            return _encoded(request, response)
        return _answer(request, api, response, traffic, flushes)

    async def serve_queued(frame: Frame, connection: ConnectionInfo) -> Answer:
        if not is_loaded(frame):
            await asyncio.get_running_loop().run_in_executor(None, load, bytes(frame[:4]))
        is_queued = len(frame) > SMALL_BYTES and frame[:2] != PRODUCE
        is_large = is_queued and len(frame) > LARGE_BYTES
        async with large_requests if is_large and int.from_bytes(frame[:2]) not in UNCOUNTED_APIS else nullcontext():
            try:
                if is_queued:
                    await fair_queue().wait_turn()
                turn = TimeSlice()
                request = _decoded(frame, connection)
                del frame
                if is_queued and turn.over:  # the first step of the handler gets its own time slice
                    await turn.next()
                api = apis[request.api_key]
                handled = api.handled(request, broker)
                return await _answer(request, api, handled, traffic, flushes, queues_encoding=is_queued)
            finally:
                if is_large:
                    idle_trim.soon()

    return serve


async def answer_of(served: Answer | Coroutine[Any, Any, Answer]) -> Answer:
    """Return the response of a Dispatch, awaiting it if it is a coroutine."""
    return await served if isinstance(served, CoroutineType) else served  # type: ignore[return-value]


async def _answer(
    request: Request, api: Api, response: Any, traffic: Traffic | None, flushes: LogFlushes | None, *,
    queues_encoding: bool = False,
) -> Answer:  # fmt: skip
    """Encode what a handler has returned, once it is awaited and its records are on disk.

    Args:
        request: The request.
        api: The API of the request.
        response: The handler's result, which may be awaitable.
        traffic: See `dispatcher`.
        flushes: See `dispatcher`.
        queues_encoding: Wait for a time slice before encoding.
    """
    if api.key in FLUSH_THEMSELVES:
        flushes = None
    failures = 0 if flushes is None else flushes.failures
    try:
        if type(response) is CoroutineType or isawaitable(response):  # the first check is faster
            response = await response
        if flushes is not None and (flushes.registered or flushes.failures != failures):
            await _flushed(flushes, failures)
        if traffic is not None and response is not None and api.key not in COUNT_THEMSELVES:
            traffic.answered(api.key, response)
    except BrokerError as error:
        if traffic is not None and api.key not in COUNT_THEMSELVES:
            traffic.refused(api.key, error.code)
        response = await api.failed(request, error.code)
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
    if request.has_long_answer or _has_long_array(response):
        return await asyncio.get_running_loop().run_in_executor(None, _encoded, request, response)
    if queues_encoding:
        await fair_queue().wait_turn()
    return _encoded(request, response)


async def _flushed(flushes: LogFlushes, failures: int) -> None:
    """Wait until the records of coordinators are on disk.

    Args:
        flushes: The flushes.
        failures: Value of `flushes.failures` before the request.

    Raises:
        BrokerError: not_coordinator, as Kafka's coordinators respond when their log fails. The client asks again.
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


def _encoded(request: Request, response: Any) -> Answer:
    try:
        return encode_response(request, response)
    except Exception as error:
        raise _defect("the encoder", request.api_key, request.version, error) from error


async def _raising(error: Exception) -> None:
    raise error


def _defect(source: str, api_key: int, version: int, error: Exception) -> ConnectionClosed:
    """Error of a request that failed because of a defect in `source`, with the line that raised it."""
    frames = list(walk_tb(error.__traceback__))
    line = f" at {frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""
    _logger.debug("%s of %s", source, api_name(api_key), exc_info=error)
    text = " ".join(str(error).split())
    return ConnectionClosed(
        f"{source} of {api_name(api_key)} version {version} raised {type(error).__name__}{line}: {text}", logging.ERROR
    )
