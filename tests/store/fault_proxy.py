"""A proxy before an S3 server that counts requests and bytes, and fails as networks and object stores do.

    with FaultProxy(server.endpoint) as proxy:
        proxy.plan = at({2: Fault(FaultKind.SLOW_DOWN), 5: Fault(FaultKind.TRUNCATE, 1000)})
        ...
        assert proxy.count("GET") == 3

Requests are passed on as they are, so that signatures hold. They are numbered from 0 in the order of their arrival.
"""

from __future__ import annotations

import http.client
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "proxy-connection"}
_PIECE = 1 << 16
_TIMEOUT = 60  # seconds; the server behind is on the same machine


class FaultKind(Enum):
    """What happens to a request."""

    INTERNAL_ERROR = "500 InternalError, as XML"
    SLOW_DOWN = "503 SlowDown, as XML"
    RESET = "the connection is reset before there is an answer"
    TRUNCATE = "the answer announces its length, and the connection is reset after some bytes of it"
    DELAY = "the answer comes later"
    LOST = "it is done, and the connection is reset before there is an answer"


@dataclass(frozen=True)
class Fault:
    """size: bytes of the body that are sent before TRUNCATE. seconds: of DELAY."""

    kind: FaultKind
    size: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Seen:
    """One request, and what became of it. sent, received: bytes of bodies, to the client and from it."""

    number: int
    method: str
    path: str
    query: dict[str, list[str]]
    range: str | None
    status: int
    sent: int
    received: int
    fault: Fault | None

    @property
    def operation(self) -> str:
        """LIST for GETs of a bucket's listing, otherwise the method."""
        return (
            "LIST" if self.method == "GET" and ("list-type" in self.query or "delimiter" in self.query) else self.method
        )


@dataclass(frozen=True)
class Request:
    """What a plan decides by."""

    number: int
    method: str
    path: str
    range: str | None


Plan = Callable[[Request], Fault | None]


def no_faults(request: Request) -> Fault | None:
    return None


def at(faults: Mapping[int, Fault]) -> Plan:
    """Faults by the number of the request."""
    return lambda request: faults.get(request.number)


def at_random(
    seed: int,
    share: float,
    most: int,
    *,
    longest_delay: float = 0.05,
    kinds: Sequence[FaultKind] = list(FaultKind)[:-1],
) -> Plan:
    """Faults of these kinds for that share of the requests, `most` of them in all: the same ones for the same
    numbers."""
    lock = threading.Lock()
    left = most

    def plan(request: Request) -> Fault | None:
        nonlocal left
        source = random.Random(seed * 1_000_003 + request.number)
        if source.random() >= share:
            return None
        with lock:
            if left == 0:
                return None
            left -= 1
        return Fault(source.choice(kinds), source.randrange(1 << 16), source.random() * longest_delay)

    return plan


class FaultProxy:
    """Listens on loopback from `__enter__` on; `endpoint` is where clients go. Thread safe."""

    def __init__(self, target: str, plan: Plan = no_faults) -> None:
        parts = urlsplit(target)
        self.host, self.port = str(parts.hostname), int(parts.port or 80)
        self.plan = plan
        self._changed = threading.Condition()
        self._seen: list[Seen] = []
        self._next = self._open = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def seen(self) -> list[Seen]:
        """All requests, by number."""
        with self._changed:
            self._wait_until_none_is_open()
            return sorted(self._seen, key=lambda seen: seen.number)

    def _wait_until_none_is_open(self) -> None:
        # A client may have its answer before the proxy has written down that it has.
        if not self._changed.wait_for(lambda: self._open == 0, _TIMEOUT):
            raise TimeoutError(f"{self._open} requests are still open")

    def count(self, operation: str | None = None) -> int:
        """Requests of an operation (LIST, GET, HEAD, PUT ...), or of all."""
        return sum(operation in (None, seen.operation) for seen in self.seen)

    @property
    def sent(self) -> int:
        """Bytes of bodies that clients got."""
        return sum(seen.sent for seen in self.seen)

    def forget(self) -> None:
        """Begin to count from nothing; numbers go on from 0."""
        with self._changed:
            self._wait_until_none_is_open()
            self._seen.clear()
            self._next = 0

    def number(self) -> int:
        with self._changed:
            self._next += 1
            self._open += 1
            return self._next - 1

    def saw(self, seen: Seen) -> None:
        with self._changed:
            self._seen.append(seen)
            self._open -= 1
            self._changed.notify_all()

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


_ERRORS = {
    FaultKind.INTERNAL_ERROR: (500, "InternalError"),
    FaultKind.SLOW_DOWN: (503, "SlowDown"),
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept, as clients expect it
    proxy: FaultProxy

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            pass  # a client closed a connection that it kept

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        request = Request(self.proxy.number(), self.command, parts.path, self.headers.get("Range"))
        body, fault = b"", None
        status = sent = 0
        try:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = self.proxy.plan(request)
            status, sent = self._answer(body, fault)
        except OSError:
            self.close_connection = True  # the client went
        finally:
            query = parse_qs(parts.query, keep_blank_values=True)
            self.proxy.saw(
                Seen(request.number, request.method, request.path, query, request.range, status, sent, len(body), fault)
            )

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _answer(self, body: bytes, fault: Fault | None) -> tuple[int, int]:
        if fault is not None:
            if fault.kind is FaultKind.RESET:
                self._reset()
                return 0, 0
            if fault.kind in _ERRORS:
                return self._error(*_ERRORS[fault.kind])
            time.sleep(fault.seconds)
        connection = http.client.HTTPConnection(self.proxy.host, self.proxy.port, timeout=_TIMEOUT)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP_BY_HOP | {"expect"}:
                    connection.putheader(name, value)
            connection.endheaders(body)
            return self._pass_on(connection.getresponse(), fault)
        finally:
            connection.close()

    def _pass_on(self, answer: http.client.HTTPResponse, fault: Fault | None) -> tuple[int, int]:
        if fault is not None and fault.kind is FaultKind.LOST:
            self._reset()
            return answer.status, 0
        length = answer.getheader("Content-Length")
        whole = answer.read() if length is None and self.command != "HEAD" else None
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if whole is not None:
            self.send_header("Content-Length", str(len(whole)))
        self.end_headers()
        most = fault.size if fault is not None and fault.kind is FaultKind.TRUNCATE else None
        sent = 0
        while piece := (answer.read(_PIECE) if whole is None else whole[sent : sent + _PIECE]):
            if most is not None:
                piece = piece[: max(most - sent, 0)]
            self.wfile.write(piece)
            sent += len(piece)
            if most is not None and sent >= most:
                self._reset()
                break
        return answer.status, sent

    def _error(self, status: int, code: str) -> tuple[int, int]:
        text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>made by the proxy</Message></Error>'
        body = b"" if self.command == "HEAD" else text.encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return status, len(body)

    def _reset(self) -> None:
        """Close with RST instead of FIN."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True
