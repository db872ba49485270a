"""The metrics of one broker: its requests counted, and the page served. Loaded only where metrics are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

from kafkalog_broker.broker import Broker
from kafkalog_broker.metrics.client_metrics import ClientMetrics
from kafkalog_broker.metrics.collector import Collector
from kafkalog_broker.metrics.exposition import CONTENT_TYPE
from kafkalog_broker.metrics.request_counts import RequestCounts, counted, noting_errors
from kafkalog_broker.net.dispatch import Dispatch, dispatcher
from kafkalog_broker.net.listener import Network
from kafkalog_broker.runtime.traffic import Layer, Traffic
from kafkalog_spark.errors import KafkalogError

# GET /metrics, /healthz and /readyz, over plain HTTP in the broker's own event loop.
#
# /healthz 200 while the event loop runs /readyz 200 while clients are served; 503, and why, before that and
# afterwards /metrics the metrics, one scrape at a time

MAX_HEAD_BYTES = 8192
"""Request line and headers; more is nobody's who wants metrics."""

PATIENCE_S = 10.0
"""For a request to come, and for its answer to be read."""

MAX_CONNECTIONS = 16
"""At once: some scrapers and probes."""

_TEXT = "text/plain; charset=utf-8"
Answer = tuple[int, str, bytes]
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class HttpServer:
    """metrics: the text. not_ready: None when the broker is ready, else why not. Used in the event loop."""

    def __init__(self, metrics: Callable[[], Awaitable[bytes]], not_ready: Callable[[], str | None]) -> None:
        self._metrics, self._not_ready = metrics, not_ready
        self._scraping = asyncio.Lock()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is chosen where 0 is asked for. Raises KafkalogError."""
        try:
            self._server = await asyncio.start_server(self._accepted, host, port, limit=MAX_HEAD_BYTES)
        except OSError as error:
            raise KafkalogError(
                f"--metrics cannot be bound to {host}:{port}: {error.strerror or error}",
                hint="choose another port, or stop the process that has it",
            ) from None
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
            status, kind, body = await self._answer(head)
            with_body = not head.startswith(b"HEAD ")
            writer.write(
                f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n".encode("ascii")
                + (body if with_body else b"")
            )
            writer.close()
            async with asyncio.timeout(PATIENCE_S):
                await writer.wait_closed()  # until all is with the operating system
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever it was does not speak HTTP, or has gone
        finally:
            writer.transport.abort()  # whoever has not read its answer by now keeps neither it nor the connection

    async def _answer(self, head: bytes) -> Answer:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/"):
            return 400, _TEXT, b"this is HTTP\n"
        if words[0] not in (b"GET", b"HEAD"):
            return 405, _TEXT, b"only GET\n"
        path = words[1].partition(b"?")[0]
        if path == b"/healthz":
            return 200, _TEXT, b"ok\n"
        if path == b"/readyz":
            why = self._not_ready()
            return (200, _TEXT, b"ready\n") if why is None else (503, _TEXT, f"not ready: {why}\n".encode())
        if path != b"/metrics":
            return 404, _TEXT, b"there are /metrics, /healthz and /readyz\n"
        async with self._scraping:
            return 200, CONTENT_TYPE, await self._metrics()


async def serve_metrics(
    broker: Broker,
    network: Callable[[], Network],
    at: tuple[str, int],
    not_ready: Callable[[], str | None],
    is_started: Callable[[], bool],
    started: AsyncExitStack,
) -> tuple[Dispatch, tuple[str, int]]:
    """What serves requests and counts them, and where the page is. at: host and port, which may be 0. started: gets the
    page's end. Raises OSError when the port is taken."""
    broker.traffic, counts = Traffic(), RequestCounts()
    broker.telemetry.receiver = clients = ClientMetrics(broker.workers)
    collector = Collector(broker, network, counts, broker.traffic, clients, not_ready, is_started)
    http = HttpServer(collector.text, not_ready)
    started.push_async_callback(http.stop)
    host, port = at
    address = host, await http.start(host, port)
    broker.apis.wrap(Layer.METRICS, partial(noting_errors, broker.traffic))
    return counted(dispatcher(broker, broker.apis), counts), address
