"""HTTP server for the paths /metrics, /healthz and /readyz."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

from prometheus_client import generate_latest

from kafkalog_broker.metrics.samples import Samples
from kafkalog_spark.errors import KafkalogError

MAX_READING = 16  # connections with an incomplete request; one more closes the oldest

MAX_SENDING = 4  # connections that receive a response; one more closes the oldest

MAX_SCRAPES = 4  # scrapes, running or queued; another one is answered with 503

MAX_HEADERS_BYTES = 8 << 10  # size limit of request line and headers
HEADERS_TIMEOUT_S = 5.0  # time limit from the connection to the end of the headers
SEND_TIMEOUT_S = 10.0  # time limit for sending a response

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PLAIN = "text/plain; charset=utf-8"
_END = b"\r\n\r\n"
_logger = logging.getLogger(__name__)


class Response(NamedTuple):
    """An HTTP response."""

    status: HTTPStatus
    content_type: str
    body: bytes


class MetricsServer:
    """HTTP server of /metrics, /healthz and /readyz.

    /healthz responds 200 while the event loop runs, /readyz 200 while clients are served and 503 with the reason
    otherwise. The server runs in the event loop, except that a scrape is rendered in a thread.

    A slow or silent peer cannot block the others: reading the headers has a deadline and a size limit, and a new
    connection closes the oldest one when all slots are used. Therefore no slots are reserved for /healthz and
    /readyz.
    """

    def __init__(self, collect: Callable[[], Awaitable[Samples]], not_ready_reason: Callable[[], str | None]) -> None:
        """Create a server that is not started.

        Args:
            collect: Returns the samples of a scrape.
            not_ready_reason: Returns why clients are not served, or None if they are.
        """
        self._collect = collect
        self._not_ready = not_ready_reason
        self._collecting = asyncio.Lock()
        self._scrapes = 0
        self._connections: set[asyncio.Task[None]] = set()
        self.reading = ConnectionSlots(MAX_READING)
        self.sending = ConnectionSlots(MAX_SENDING)
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; `self.port` is the port afterwards, also if `port` is 0 for any free one.

        Raises:
            KafkalogError: If the address cannot be bound.
        """
        try:
            self._server = await asyncio.start_server(self._handle_connection, host, port, limit=MAX_HEADERS_BYTES)
        except OSError as error:
            raise KafkalogError(
                f"--metrics cannot be bound to {host}:{port}: {error.strerror or error}",
                hint="choose another port, or stop the process that uses it",
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Close the socket and all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.reading.enter(task)
        try:
            # Not an error of the broker: the peer closed the connection, reads nothing, or lost its slot.
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
            async with asyncio.timeout(HEADERS_TIMEOUT_S):
                method, path = await _request(reader)
        except asyncio.LimitOverrunError:
            text = f"the request line and headers have more than {MAX_HEADERS_BYTES} bytes\n".encode()
            async with asyncio.timeout(HEADERS_TIMEOUT_S):
                await _send(writer, "GET", Response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _PLAIN, text))
                writer.write_eof()
                while await reader.read(MAX_HEADERS_BYTES):  # TCP discards the response if bytes are unread at close
                    pass
        except (asyncio.IncompleteReadError, ValueError):
            pass  # the peer does not speak HTTP
        else:
            self.reading.leave(task)
            response = await self._respond(method, path)
            self.sending.enter(task)
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await _send(writer, method, response)

    async def _respond(self, method: str, path: str) -> Response:
        try:
            return await self._handle(method, path)
        except Exception:
            _logger.exception("metrics: the request for %s failed", path[:100])
            return Response(HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, b"see the broker's log\n")

    async def _handle(self, method: str, path: str) -> Response:
        if method not in ("GET", "HEAD"):
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, b"only GET and HEAD are supported\n")
        if path == "/metrics":
            return await self._scrape()
        if path == "/healthz":
            return Response(HTTPStatus.OK, _PLAIN, b"ok\n")
        if path != "/readyz":
            return Response(HTTPStatus.NOT_FOUND, _PLAIN, b"the paths are /metrics, /healthz and /readyz\n")
        reason = self._not_ready()
        if reason is None:
            return Response(HTTPStatus.OK, _PLAIN, b"ready\n")
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, f"not ready: {reason}\n".encode())

    async def _scrape(self) -> Response:
        if self._scrapes >= MAX_SCRAPES:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, b"too many scrapes at a time\n")
        self._scrapes += 1
        try:
            async with self._collecting:
                samples = await self._collect()
                text = await asyncio.to_thread(generate_latest, samples)  # type: ignore[arg-type]
                return Response(HTTPStatus.OK, CONTENT_TYPE, text)
        finally:
            self._scrapes -= 1


class ConnectionSlots:
    """Connections in one phase, at most `limit`; entering when it is full closes the oldest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: dict[asyncio.Task[None], None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def enter(self, task: asyncio.Task[None]) -> None:
        """Add the task of a connection; if all slots are taken, cancel the oldest."""
        if len(self._tasks) >= self._limit:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            oldest.cancel()
        self._tasks[task] = None

    def leave(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)


async def _request(reader: asyncio.StreamReader) -> tuple[str, str]:
    """Read a request, and return its method and path.

    Raises:
        ValueError, IncompleteReadError: If it is not HTTP.
        LimitOverrunError: If the headers are larger than MAX_HEADERS_BYTES.
        OSError: If the connection is lost.
    """
    head = await reader.readuntil(_END)
    method, target, version = head.partition(b"\r\n")[0].decode("ascii").split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    return method, target.partition("?")[0]


async def _send(writer: asyncio.StreamWriter, method: str, response: Response) -> None:
    status, content_type, body = response
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.transport.set_write_buffer_limits(0)  # so that `drain` waits until all bytes are in the socket
    writer.write(head.encode() + (b"" if method == "HEAD" else body))
    await writer.drain()
