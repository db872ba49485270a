"""HTTP client with a deadline and without redirects to other servers, for schema registries and a broker's JWKS URL.

One deadline covers the connection, the response and all redirects, so that a server cannot prolong a request by sending
single bytes. Only the look-up of the host name has its own limit, that of the system's resolver. Redirects are followed
only to the same scheme, host and port, because another server would receive the credentials and determine the response.
Proxies are never used.
"""

from __future__ import annotations

import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, urljoin, urlsplit

TIMEOUT_S = 10.0
REDIRECTS = 3  # enough for a moved path and a missing slash

_MOVED = (301, 302, 303, 307, 308)
_MOVED_WITH_BODY = (307, 308)  # redirects after which a POST is repeated as a POST
_PORTS = {"http": 80, "https": 443}


class Response(NamedTuple):
    """Response of a server."""

    status: int
    reason: str  # the reason phrase
    content: bytes


@dataclass(frozen=True)
class HttpClient:
    """Sender of requests. The texts of its errors continue a sentence about the URL, which the caller begins.

    Attributes:
        max_bytes: Maximum size of a response body.
        headers: Headers of every request.
        tls: TLS context for https; None for the system's default.
        clock: Returns monotonic seconds.
    """

    max_bytes: int
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None = None
    clock: Callable[[], float] = time.monotonic

    def send(self, url: str, body: bytes | None = None, content_type: str = "") -> Response:
        """Send a GET, or a POST if there is a body, and return the response.

        Args:
            url: URL with scheme http or https.
            body: Body of a POST.
            content_type: Its content type.

        Raises:
            OSError: If there is no response, including TimeoutError.
            ValueError: If the URL is invalid, the response is too large, or a redirect is not followed.
        """
        deadline, parts = self.clock() + TIMEOUT_S, urlsplit(url)
        origin = _origin(parts)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError("it is not a URL with http:// or https:// and a host")
        headers = {**self.headers, **({"Content-Type": content_type} if content_type else {})}
        for _ in range(1 + REDIRECTS):
            result = self._send_once(parts, body, headers, deadline)
            if isinstance(result, Response):
                return result
            parts = urlsplit(urljoin(parts.geturl(), result))
            if _origin(parts) != origin:
                raise ValueError(
                    f"it redirects to another server; if {parts.geturl()[:200]} is right, make that the URL"
                )
        raise ValueError(f"it redirects more than {REDIRECTS} times")

    def _send_once(
        self, parts: SplitResult, body: bytes | None, headers: Mapping[str, str], deadline: float
    ) -> Response | str:
        """Return the response, or the target of a redirect."""
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        deadline_socket = _DeadlineSocket(deadline, self.clock)
        try:
            deadline_socket.connect(
                host, port, (self.tls or ssl.create_default_context()) if parts.scheme == "https" else None
            )
            connection = HTTPConnection(host, port)
            connection.default_port = _PORTS[parts.scheme]
            connection.sock = cast("socket.socket", deadline_socket)
            path = parts._replace(scheme="", netloc="", path=parts.path or "/", fragment="").geturl()
            method = "GET" if body is None else "POST"
            connection.request(method, path, body, {**headers, "Connection": "close"})
            response = connection.getresponse()
            if response.status in (_MOVED if body is None else _MOVED_WITH_BODY):
                return response.getheader("Location", "")
            content = response.read(self.max_bytes + 1)
            if len(content) > self.max_bytes:
                raise ValueError(f"it is larger than {self.max_bytes} bytes")
            return Response(response.status, response.reason[:200], content)
        except HTTPException as error:
            raise ConnectionError(f"its server does not speak HTTP: {type(error).__name__}") from None
        finally:
            deadline_socket.release()


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


class _DeadlineSocket(io.RawIOBase):
    """A socket for http.client with one deadline for all calls, whereas `settimeout` limits each call separately.

    http.client closes the socket before the body is read, so `close` does nothing; the owner calls `release`.
    """

    def __init__(self, deadline: float, clock: Callable[[], float]) -> None:
        self._deadline, self._clock = deadline, clock
        self._socket: socket.socket | None = None

    def connect(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        failed: OSError | None = None
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for i, (*_, address) in enumerate(addresses):
            try:
                self._socket = socket.create_connection(
                    (str(address[0]), port), self._seconds_left() / (len(addresses) - i)
                )
                break
            except OSError as error:
                failed = error
        else:
            raise failed or OSError("its name has no address")
        if tls is not None:
            wrapped = tls.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
            self._socket = wrapped
            self._with_timeout()
            wrapped.do_handshake()

    def sendall(self, data: bytes) -> None:
        self._with_timeout().sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._with_timeout().recv_into(buffer)

    def close(self) -> None:
        return None

    def release(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _with_timeout(self) -> socket.socket:
        """Return the socket, with the remaining time as its timeout."""
        assert self._socket is not None
        self._socket.settimeout(self._seconds_left())
        return self._socket

    def _seconds_left(self) -> float:
        left = self._deadline - self._clock()
        if left <= 0:
            raise TimeoutError(f"its server did not send the whole response within {TIMEOUT_S:.0f} s")
        return left
