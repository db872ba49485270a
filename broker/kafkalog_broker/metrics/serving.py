"""HTTP server of a broker's metrics. Loaded only where metrics are asked for."""

from __future__ import annotations

import asyncio
import io
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any, TypeVar
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import generate_latest
from prometheus_client.exposition import ThreadingWSGIServer

from kafkalog_broker.broker import Broker
from kafkalog_broker.metrics.collector import Collector, RequestCounts, counted
from kafkalog_broker.metrics.exposition import Samples
from kafkalog_broker.net.dispatch import Dispatch, dispatcher
from kafkalog_broker.net.listener import Network
from kafkalog_broker.runtime.traffic import Traffic
from kafkalog_broker.telemetry.client_instances import ClientMetrics
from kafkalog_spark.errors import KafkalogError

MAX_CONNECTIONS = 16  # served at once, each by a thread: some scrapers and probes

TIMEOUT_S = 10.0  # for each read of a request, for the event loop's answer, and for sending it

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PLAIN = "text/plain; charset=utf-8"
_logger = logging.getLogger(__name__)
Answer = tuple[HTTPStatus, str, bytes]
T = TypeVar("T")


class MetricsServer(ThreadingWSGIServer):
    """HTTP server of /metrics, of /healthz (200 while the event loop runs) and of /readyz (200 while clients are
    served, else 503 and why). Threads serve what the event loop accepts, and have the loop call `collect` (a scrape)
    and `not_ready` (why, or None). Raises KafkalogError when the port is taken."""

    def __init__(
        self,
        at: tuple[str, int],
        collect: Callable[[], Coroutine[Any, Any, Samples]],
        not_ready: Callable[[], str | None],
    ) -> None:
        self._collect, self._not_ready = collect, not_ready
        self._loop = asyncio.get_running_loop()
        self._scraping = threading.Lock()
        self._free = threading.Semaphore(MAX_CONNECTIONS)
        host, port = at
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__(at, _Handler)
        except OSError as error:
            raise KafkalogError(
                f"--metrics cannot be bound to {host}:{port}: {error.strerror or error}",
                hint="choose another port, or stop the process that has it",
            ) from None
        self.set_app(self._serve)
        self.socket.setblocking(False)
        self._loop.add_reader(self.socket, self.handle_request)

    def server_bind(self) -> None:
        """Without WSGIServer's reverse look-up of the host's name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def server_close(self) -> None:
        self._loop.remove_reader(self.socket)
        super().server_close()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self._free.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: the peer does not speak HTTP, does not read, or has gone."""

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        method = environ["REQUEST_METHOD"]
        try:
            status, kind, body = self._answer(method, environ["PATH_INFO"])
        except Exception:
            _logger.exception("metrics: %s cannot be answered", environ["PATH_INFO"][:100])
            status, kind, body = HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, b"see the broker's log\n"
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        start_response(f"{status.value} {status.phrase}", headers)
        return [body] if method != "HEAD" else []

    def _answer(self, method: str, path: str) -> Answer:
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, b"only GET\n"
        if path == "/metrics":
            with self._scraping:
                return HTTPStatus.OK, CONTENT_TYPE, generate_latest(self._in_loop(self._collect()))  # type: ignore[arg-type]
        if path not in ("/healthz", "/readyz"):
            return HTTPStatus.NOT_FOUND, _PLAIN, b"there are /metrics, /healthz and /readyz\n"

        async def readiness() -> str | None:
            return self._not_ready()

        why = self._in_loop(readiness())
        if path == "/healthz":
            return HTTPStatus.OK, _PLAIN, b"ok\n"
        if why is None:
            return HTTPStatus.OK, _PLAIN, b"ready\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, f"not ready: {why}\n".encode()

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def get_stderr(self) -> Any:
        """Takes the traces of peers that have gone or do not read."""
        return io.StringIO()


def serve_metrics(
    broker: Broker, network: Callable[[], Network], at: tuple[str, int], started: AsyncExitStack
) -> tuple[Dispatch, tuple[str, int]]:
    """Returns the dispatch that counts requests, and the page's address. at: host and port, which may be 0.
    started: gets the page's end. Raises KafkalogError when the port is taken."""
    broker.traffic, counts = Traffic(), RequestCounts()
    broker.telemetry.receiver = clients = ClientMetrics(broker.workers)
    page = MetricsServer(at, Collector(broker, network, counts, broker.traffic, clients).collect, broker.not_ready)
    started.callback(page.server_close)
    return counted(dispatcher(broker, broker.apis, broker.traffic, broker.flushes), counts), (at[0], page.server_port)
