"""HTTP server of a broker's metrics. Loaded only where metrics are asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from http import HTTPStatus

from prometheus_client import generate_latest

from kafkalog_broker.metrics.collector import Collector, RequestCounts, counted
from kafkalog_broker.metrics.exposition import Samples
from kafkalog_broker.net.dispatch import Dispatch
from kafkalog_broker.runtime.lifecycle import Lifecycle
from kafkalog_broker.runtime.traffic import Traffic
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.telemetry.client_instances import ClientMetrics
from kafkalog_spark.errors import KafkalogError

MAX_READING = 16  # connections whose request has not arrived; for one more the oldest is closed

MAX_SENDING = 4  # connections that receive a response; for one more the oldest is closed

MAX_SCRAPES = 4  # scrapes that are collected and rendered, one after the other; one more gets 503

HEAD_BYTES = 8 << 10  # request line and headers
HEAD_S = 5.0  # from the connection to the end of its headers
SEND_S = 10.0  # for a response

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PLAIN = "text/plain; charset=utf-8"
_END = b"\r\n\r\n"
_logger = logging.getLogger(__name__)
Answer = tuple[HTTPStatus, str, bytes]


class Slots:
    """Connections of one kind, of which the oldest is closed when there are too many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: dict[asyncio.Task[None], None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def enter(self, task: asyncio.Task[None]) -> None:
        """Cancel the oldest task if there is no room for this one."""
        if len(self._tasks) >= self._limit:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            oldest.cancel()
        self._tasks[task] = None

    def leave(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)


class MetricsServer:
    """HTTP server of /metrics, of /healthz (200 while the event loop runs) and of /readyz (200 while clients are
    served, else 503 and why). It runs in the event loop, except for the rendering of a scrape.

    A slow or silent peer holds up no other: a request has one deadline and HEAD_BYTES, and a new connection takes the
    slot of the oldest one. So /healthz and /readyz, which are answered in one step, need no slot of their own.

    Args:
        collect: makes the samples of a scrape.
        not_ready: why clients are not served, or None.
    """

    def __init__(self, collect: Callable[[], Awaitable[Samples]], not_ready: Callable[[], str | None]) -> None:
        self._collect, self._not_ready = collect, not_ready
        self._collecting = asyncio.Lock()
        self._scrapes = 0
        self._connections: set[asyncio.Task[None]] = set()
        self.reading, self.sending = Slots(MAX_READING), Slots(MAX_SENDING)
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Raises KafkalogError when the port is taken. port: 0 for any; `self.port` has it then."""
        try:
            self._server = await asyncio.start_server(self._connected, host, port, limit=HEAD_BYTES)
        except OSError as error:
            raise KafkalogError(
                f"--metrics cannot be bound to {host}:{port}: {error.strerror or error}",
                hint="choose another port, or stop the process that has it",
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.reading.enter(task)
        try:
            # A peer that has gone, does not read, or has to make room is no error.
            with suppress(OSError, asyncio.CancelledError):
                await self._serve(task, reader, writer)
        finally:
            self._connections.discard(task)
            self.reading.leave(task)
            self.sending.leave(task)
            writer.transport.abort()

    async def _serve(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                method, path = await _request(reader)
        except asyncio.LimitOverrunError:
            text = f"the request line and headers have more than {HEAD_BYTES} bytes\n".encode()
            async with asyncio.timeout(HEAD_S):
                await _send(writer, "GET", (HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _PLAIN, text))
                writer.write_eof()
                while await reader.read(HEAD_BYTES):  # closed with unread bytes, TCP would discard the response
                    pass
        except (asyncio.IncompleteReadError, ValueError):
            pass  # the peer does not speak HTTP
        else:
            self.reading.leave(task)
            answer = await self._answered(method, path)
            self.sending.enter(task)
            async with asyncio.timeout(SEND_S):
                await _send(writer, method, answer)

    async def _answered(self, method: str, path: str) -> Answer:
        try:
            return await self._answer(method, path)
        except Exception:
            _logger.exception("metrics: %s cannot be answered", path[:100])
            return HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, b"see the broker's log\n"

    async def _answer(self, method: str, path: str) -> Answer:
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, b"only GET\n"
        if path == "/metrics":
            return await self._scraped()
        if path == "/healthz":
            return HTTPStatus.OK, _PLAIN, b"ok\n"
        if path != "/readyz":
            return HTTPStatus.NOT_FOUND, _PLAIN, b"there are /metrics, /healthz and /readyz\n"
        why = self._not_ready()
        if why is None:
            return HTTPStatus.OK, _PLAIN, b"ready\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, f"not ready: {why}\n".encode()

    async def _scraped(self) -> Answer:
        if self._scrapes >= MAX_SCRAPES:
            return HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, b"too many scrapes at a time\n"
        self._scrapes += 1
        try:
            async with self._collecting:
                samples = await self._collect()
                text = await asyncio.to_thread(generate_latest, samples)  # type: ignore[arg-type]
                return HTTPStatus.OK, CONTENT_TYPE, text
        finally:
            self._scrapes -= 1


async def _request(reader: asyncio.StreamReader) -> tuple[str, str]:
    """Method and path of a request. Raises ValueError, IncompleteReadError, LimitOverrunError, OSError."""
    head = await reader.readuntil(_END)
    method, target, version = head.partition(b"\r\n")[0].decode("ascii").split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    return method, target.partition("?")[0]


async def _send(writer: asyncio.StreamWriter, method: str, answer: Answer) -> None:
    status, kind, body = answer
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.transport.set_write_buffer_limits(0)  # `drain` waits until the socket has all of it
    writer.write(head.encode() + (b"" if method == "HEAD" else body))
    await writer.drain()


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics that are served from the start of a broker.

    collector: attach the broker once it is complete.
    traffic: counts errors and bytes in the handlers.
    clients: receives the metrics that clients push.
    address: host and port.
    """

    collector: Collector
    traffic: Traffic
    clients: ClientMetrics
    requests: RequestCounts
    address: tuple[str, int]

    def count(self, dispatch: Dispatch) -> Dispatch:
        """Return a dispatch that counts the requests of `dispatch`."""
        return counted(dispatch, self.requests)


async def start_metrics(
    address: tuple[str, int], lifecycle: Lifecycle, workers: Workers, listeners: Sequence[str], started: AsyncExitStack
) -> Metrics:
    """Serve metrics and the state of a broker that starts.

    Args:
        address: Host and port; port 0 takes any free one.
        lifecycle: State of the broker.
        workers: Threads.
        listeners: Names of the broker's listeners.
        started: Closes the server when it unwinds.

    Raises:
        KafkalogError: If the address cannot be bound.
    """
    traffic, requests, clients = Traffic(), RequestCounts(), ClientMetrics(workers)
    collector = Collector(lifecycle, listeners, requests, traffic, clients)
    page = MetricsServer(collector.collect, lifecycle.not_ready)
    started.callback(page.close)
    await page.start(*address)
    return Metrics(collector, traffic, clients, requests, (address[0], page.port))
