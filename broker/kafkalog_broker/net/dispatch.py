"""From a frame to the pieces of its response: decode, call the handler, encode; with SASL, authenticate before."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext, suppress
from inspect import isawaitable
from time import monotonic
from traceback import walk_tb
from types import CoroutineType
from typing import Any

from kafkalog_broker.config.listener_settings import SaslSettings
from kafkalog_broker.coordinator.coordinator_errors import coordinator_error_code
from kafkalog_broker.coordinator.log_flushes import LogFlushes
from kafkalog_broker.errors import BrokerError, ErrorCode, MalformedRequest
from kafkalog_broker.net.request_reader import PRODUCE
from kafkalog_broker.protocol.api_messages import API_VERSIONS, api_name
from kafkalog_broker.protocol.api_registry import Api, registry
from kafkalog_broker.protocol.frames import (
    decode_one_batch,
    decode_request,
    encode_response,
    is_loaded,
    load,
)
from kafkalog_broker.protocol.request import ConnectionInfo, Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, fair_queue
from kafkalog_broker.runtime.process import IdleTrim
from kafkalog_broker.runtime.traffic import Traffic, codes_and_arrays
from kafkalog_broker.security.sasl import AUTHENTICATE, HANDSHAKE, KnownUsers, Refused, SaslExchange, Session

_logger = logging.getLogger(__name__)

SMALL_BYTES = 4096
"""A request of an API other than Produce is read at once up to this size, in 2 ms at most. Those above it stand in
line: one of them is read, or answered, in a round of the event loop."""

LARGE_BYTES = 64 << 10
"""A ListOffsets of 4,000 partitions. Of requests above it, IN_WORK are handled at a time."""

IN_WORK = 4
"""A value of a request costs some ten times its bytes: fifty requests of 240 kB at once took 300 MB."""

WAITING_APIS = frozenset((1, 11, 14))
"""Fetch, JoinGroup and SyncGroup may wait for others for minutes, and are not counted."""

LONG_ARRAY = 2_000
"""A response whose own array is longer lists what there is, however little was asked: it is encoded in a thread."""

Frame = bytes | memoryview
Answer = list[Any] | None  # the pieces of a response; None: there is none

Dispatch = Callable[[Frame, ConnectionInfo], Answer | Coroutine[Any, Any, Answer]]
"""Function that a connection calls with a frame. A small request whose handler waits for nothing is answered at once,
as a coroutine would cost it 3 percent. It raises ConnectionClosed, at once or later, to end the connection."""


class ConnectionClosed(Exception):
    """The connection has to be closed; the text says why, in one line. `level` is the level of the log line, `last` a
    response that is still to be written."""

    def __init__(self, why: str, level: int = logging.WARNING, last: list[Any] | None = None) -> None:
        super().__init__(why)
        self.level = level
        self.last = last


COUNT_THEMSELVES = (0, 1)  # Produce and Fetch tell Traffic of errors as they make their answers

FLUSH_THEMSELVES = (0, 1)
"""Produce waits for the flush of what it depends on, and Fetch reads only below the high watermark."""


def dispatcher(
    broker: Any, served: Mapping[int, Api] | None = None, traffic: Traffic | None = None,
    flushes: LogFlushes | None = None,
) -> Dispatch:  # fmt: skip
    """Serve the registered APIs with `broker` handed to the handlers. served: others than those, looked at with each
    request. traffic: is told of the errors in answers. flushes: of coordinators' logs. While one of them has a record
    that must be on disk, responses of all APIs but FLUSH_THEMSELVES wait: also a response that only reads depends on
    records that other requests and timers have written."""
    apis = registry() if served is None else served
    unflushed: Mapping[Any, Any] = {} if flushes is None else flushes.registered
    in_work = asyncio.Semaphore(IN_WORK)
    idle_trim = IdleTrim(lambda trim: asyncio.get_running_loop().run_in_executor(None, trim))

    def serve(frame: Frame, connection: ConnectionInfo) -> Answer | Coroutine[Any, Any, Answer]:
        request: Request | None
        if type(frame) is bytes and len(frame) <= SMALL_BYTES and is_loaded(frame):
            request = _decoded(frame, connection)
        elif frame[:2] == PRODUCE and is_loaded(frame):
            # Nearly all of what producers send. To read it takes 3 us, however large the batch is.
            request = _decoded(frame, connection, decode_one_batch)
        else:
            request = None
        if request is None:
            return serve_in_line(frame, connection)
        api = apis[request.api_key]
        try:
            response = api.handler(request, broker)
        except Exception as error:  # noqa: BLE001 - handled where one that waits raises it
            return _answer(request, api, _raising(error), traffic, flushes)
        if response is None:
            return None
        if unflushed and api.key not in FLUSH_THEMSELVES:
            return _answer(request, api, response, traffic, flushes)
        if isinstance(response, tuple) or not (traffic or isawaitable(response) or _has_long_array(response)):
            return _encoded(request, response)
        return _answer(request, api, response, traffic, flushes)

    async def serve_in_line(frame: Frame, connection: ConnectionInfo) -> Answer:
        if not is_loaded(frame):
            await asyncio.get_running_loop().run_in_executor(None, load, bytes(frame[:4]))
        waits = len(frame) > SMALL_BYTES and frame[:2] != PRODUCE
        large = waits and len(frame) > LARGE_BYTES
        async with in_work if large and int.from_bytes(frame[:2]) not in WAITING_APIS else nullcontext():
            try:
                if waits:
                    await fair_queue().go_on()
                turn = TimeSlice()
                request = _decoded(frame, connection)
                del frame
                if waits and turn.over:  # what the handler does first is a step of its own
                    await turn.next()
                api = apis[request.api_key]
                return await _answer(request, api, api.handled(request, broker), traffic, flushes, waits=waits)
            finally:
                if large:
                    idle_trim.soon()

    return serve


async def _answer(
    request: Request, api: Api, response: Any, traffic: Traffic | None, flushes: LogFlushes | None, *,
    waits: bool = False,
) -> Answer:  # fmt: skip
    """The pieces of what a handler has returned, which may be something to wait for. waits: in line, to be encoded."""
    if api.key in FLUSH_THEMSELVES:
        flushes = None
    failures = 0 if flushes is None else flushes.failures
    try:
        if type(response) is CoroutineType or isawaitable(response):  # the first is the faster look
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
        raise _crashed("the handler", request.api_key, request.version, error) from error
    if response is None:
        return None
    if request.has_long_answer or _has_long_array(response):
        return await asyncio.get_running_loop().run_in_executor(None, _encoded, request, response)
    if waits:
        await fair_queue().go_on()
    return _encoded(request, response)


async def _flushed(flushes: LogFlushes, failures: int) -> None:
    """Return when the records of coordinators are on disk. failures: what LogFlushes counted before the request.

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
        raise _crashed("the encoder", request.api_key, request.version, error) from error


async def _raising(error: Exception) -> None:
    raise error


async def answer_of(served: Answer | Coroutine[Any, Any, Answer]) -> Answer:
    """Answer of a Dispatch, awaited where it is a coroutine."""
    return await served if isinstance(served, CoroutineType) else served  # type: ignore[return-value]


def _crashed(who: str, api_key: int, version: int, error: Exception) -> ConnectionClosed:
    frames = list(walk_tb(error.__traceback__))
    place = f" at {frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""
    _logger.debug("%s of %s", who, api_name(api_key), exc_info=error)
    text = " ".join(str(error).split())
    return ConnectionClosed(
        f"{who} of {api_name(api_key)} version {version} raised {type(error).__name__}{place}: {text}", logging.ERROR
    )


# Listeners with SASL: no request of a connection is served before the peer has authenticated.
#
# While it has not, only ApiVersions, SaslHandshake and SaslAuthenticate come through, in the order that `SaslExchange`
# allows. A session that ends is renewed on the same connection (KIP-368), or the next request closes it.

_HANDSHAKE = HANDSHAKE.to_bytes(2, "big")
_KEY_AND_VERSION = struct.Struct(">hh")

AGAIN_S = 1.0  # re-authentications of a connection are so far apart at least, as in Kafka


class SaslGate:
    """A Dispatch of one connection. settings: asked at each exchange. authenticated: called with the principal. clock:
    seconds."""

    def __init__(
        self,
        settings: Callable[[], SaslSettings],
        known: KnownUsers,
        serve: Dispatch,
        authenticated: Callable[[str], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._settings, self._known, self._serve = settings, known, serve
        self._authenticated, self._clock = authenticated, clock
        self._free = False  # authenticated for ever
        self._session: Session | None = None
        self._ends = self._begun_again = 0.0
        self._raw = False  # tokens come as frames without a header: SaslHandshake 0
        self._exchange: SaslExchange | None = SaslExchange(settings(), known)

    def __call__(self, frame: Frame, connection: ConnectionInfo) -> Answer | Coroutine[Any, Any, Answer]:
        return self._serve(frame, connection) if self._free else self._guarded(frame, connection)

    @property
    def max_request_bytes(self) -> int:
        """Largest request before the sender is known, in bytes."""
        return self._settings().max_receive_bytes

    async def _guarded(self, frame: Frame, connection: ConnectionInfo) -> Answer:
        if self._exchange is None:
            now = self._clock()
            if frame[:2] == _HANDSHAKE and (not self._begun_again or now - self._begun_again >= AGAIN_S):
                self._begun_again = now
                self._exchange, self._raw = SaslExchange(self._settings(), self._known, self._session), False
            elif now >= self._ends:
                raise ConnectionClosed("its session has expired, and it has not authenticated again", logging.INFO)
            else:
                served = self._serve(frame, connection)
                del frame  # as without a gate: it need not stay while it is handled
                return await answer_of(served)
        return await self._authenticate(self._exchange, frame, connection)

    async def _authenticate(self, exchange: SaslExchange, frame: Frame, connection: ConnectionInfo) -> Answer:
        pieces: Answer
        if self._raw:
            try:
                token = exchange.token(bytes(frame))
                pieces = [struct.pack(">i", len(token)) + token]
            except Refused:
                pieces = None  # there is no frame for an error
        else:
            key, version = _expected(exchange, frame)
            connection.sasl = exchange
            try:
                pieces = await answer_of(self._serve(frame, connection))
            finally:
                connection.sasl = None
            if key == API_VERSIONS and registry()[API_VERSIONS].serves(version):
                exchange.api_versions()
            self._raw = key == HANDSHAKE and version == 0
        if exchange.refused is not None:
            # The answer is what a client that guesses passwords waits for.
            await asyncio.sleep(self._settings().failed_delay_ms / 1000)
            raise ConnectionClosed(f"not authenticated: {exchange.refused}", logging.WARNING, pieces)
        if (session := exchange.session) is not None:
            self._exchange, self._session, self._raw = None, session, False
            self._ends = self._clock() + (session.lifetime_ms or 0) / 1000
            self._free = session.lifetime_ms is None
            self._authenticated(session.principal)
        return pieces


def _expected(exchange: SaslExchange, frame: Frame) -> tuple[int, int]:
    """API key and version of a request. Raises ConnectionClosed for one that may not come now."""
    if len(frame) < _KEY_AND_VERSION.size:
        raise ConnectionClosed(f"a frame of {len(frame)} bytes has no room for a request header")
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    if key == HANDSHAKE and AUTHENTICATE in exchange.expected:
        exchange.refuse("it sent a second SaslHandshake")  # which is answered
    elif key not in exchange.expected:
        name = api_name(key) if key in registry() else f"API key {key}"
        raise ConnectionClosed(f"it sent {name} where it has to authenticate first (is its sasl.mechanism set?)")
    return key, version


Gate = Callable[[Dispatch, Callable[[str], None]], SaslGate]
"""Made for each connection of a listener with SASL, of what serves requests and takes the principal."""
