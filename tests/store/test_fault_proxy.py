"""The proxy itself: what it passes on, counts and breaks. Behind it is a server that answers with what it was asked."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.store.fault_proxy import Fault, FaultKind, FaultProxy, Request, at, at_random

BODY = bytes(range(256)) * 1000


class Echo(BaseHTTPRequestHandler):
    """GET: BODY, or the range of it. PUT: the body that came, and its headers."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        body, status = BODY, 200
        if wanted:
            begin, end = wanted.removeprefix("bytes=").split("-")
            body, status = BODY[int(begin) : int(end) + 1], 206
        self._send(status, body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._send(200, f"{self.path} {self.headers['Host']} {self.headers['X-Signed']} ".encode() + body)

    def do_HEAD(self) -> None:
        self.send_response_only(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()

    def _send(self, status: int, body: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        with FaultProxy(f"http://127.0.0.1:{server.server_address[1]}") as made:
            yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=20)
    yield connection
    connection.close()


def ask(client: http.client.HTTPConnection, method: str, path: str, **given: Any) -> tuple[int, bytes]:
    client.request(method, path, **given)
    answer = client.getresponse()
    return answer.status, answer.read()


def test_proxy_forwards_and_counts_requests(proxy: FaultProxy, client: http.client.HTTPConnection) -> None:
    """Over one connection: the path as it was encoded, the host and other headers that are signed, and ranges."""
    assert ask(client, "GET", "/bucket/key%20%C3%B6") == (200, BODY)
    assert ask(client, "GET", "/bucket/key", headers={"Range": "bytes=10-19"}) == (206, BODY[10:20])
    sent = ask(client, "PUT", "/b/k?partNumber=1", body=b"data", headers={"X-Signed": "yes", "Host": "s3.example:1"})
    assert sent == (200, b"/b/k?partNumber=1 s3.example:1 yes data")
    assert ask(client, "HEAD", "/b/k") == (200, b"")
    ask(client, "GET", "/bucket?list-type=2&prefix=a%2F")
    assert [seen.operation for seen in proxy.seen] == ["GET", "GET", "PUT", "HEAD", "LIST"]
    assert [seen.sent for seen in proxy.seen] == [len(BODY), 10, len(sent[1]), 0, len(BODY)]
    assert (proxy.seen[1].range, proxy.seen[2].received, proxy.seen[4].query["prefix"]) == ("bytes=10-19", 4, ["a/"])
    assert (proxy.count(), proxy.count("GET"), proxy.sent) == (5, 2, 2 * len(BODY) + 10 + len(sent[1]))
    proxy.forget()
    assert (proxy.count(), proxy.sent) == (0, 0)


def test_proxy_returns_the_errors_of_object_stores(proxy: FaultProxy, client: http.client.HTTPConnection) -> None:
    proxy.plan = at({0: Fault(FaultKind.INTERNAL_ERROR), 2: Fault(FaultKind.SLOW_DOWN), 3: Fault(FaultKind.SLOW_DOWN)})
    status, body = ask(client, "GET", "/b/k")
    assert (status, b"<Code>InternalError</Code>" in body) == (500, True)
    assert ask(client, "GET", "/b/k") == (200, BODY)
    status, body = ask(client, "PUT", "/b/k", body=b"data")
    assert (status, b"<Code>SlowDown</Code>" in body) == (503, True)
    assert ask(client, "HEAD", "/b/k") == (503, b"")
    assert [seen.status for seen in proxy.seen] == [500, 200, 503, 503]


def test_proxy_resets_a_connection(proxy: FaultProxy, client: http.client.HTTPConnection) -> None:
    proxy.plan = at({0: Fault(FaultKind.RESET)})
    with pytest.raises(ConnectionResetError):
        ask(client, "GET", "/b/k")
    client.close()
    assert ask(client, "GET", "/b/k") == (200, BODY)


@pytest.mark.parametrize("size", [0, 1000])
def test_proxy_truncates_a_response(proxy: FaultProxy, client: http.client.HTTPConnection, size: int) -> None:
    proxy.plan = at({0: Fault(FaultKind.TRUNCATE, size)})
    client.request("GET", "/b/k")
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        client.getresponse().read()
    client.close()
    assert ask(client, "GET", "/b/k") == (200, BODY)
    assert [seen.sent for seen in proxy.seen] == [size, len(BODY)]


def test_proxy_delays_a_response(proxy: FaultProxy, client: http.client.HTTPConnection) -> None:
    proxy.plan = at({0: Fault(FaultKind.DELAY, seconds=0.01)})
    assert ask(client, "GET", "/b/k") == (200, BODY)
    assert proxy.seen[0].fault == Fault(FaultKind.DELAY, seconds=0.01)


def test_random_faults_are_equal_for_equal_seeds() -> None:
    requests = [Request(number, "GET", "/b/k", None) for number in range(300)]
    one, two = (at_random(7, 0.2, 20, kinds=list(FaultKind)) for _ in range(2))
    faults = [one(request) for request in requests]
    assert faults == [two(request) for request in requests]
    assert sum(fault is not None for fault in faults) == 20
    assert {fault.kind for fault in faults if fault} == set(FaultKind)
    assert faults != [at_random(8, 0.2, 20, kinds=list(FaultKind))(request) for request in requests]
