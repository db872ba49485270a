"""The bytes of a JSON Web Key Set, from a file or a server: within a time limit in all, from nowhere else than the URL.

A proxy is not used, whatever the environment says, and a redirect is followed to the same server only: who can send the
broker elsewhere decides whose tokens it takes.
"""

from __future__ import annotations

import io
import socket
import ssl
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

TIMEOUT_S = 10.0
"""For the whole answer of a server, redirects included: a byte now and then is no better than silence."""
MAX_BYTES = 1 << 20
"""A set of some hundred keys has a tenth of it."""
REDIRECTS = 3
"""On one server: a path that moved, and one more for a slash."""

_MOVED = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}


def read_jwks(url: str, clock: Callable[[], float]) -> bytes:
    """What the URL (file, http, https) holds. clock: seconds of a clock that never goes back.

    Raises OSError (TimeoutError too) or ValueError, with why.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        with Path(unquote(parts.path)).open("rb") as file:
            return _whole(file)
    deadline, origin = clock() + TIMEOUT_S, _origin(parts)
    for _ in range(1 + REDIRECTS):
        found = _asked(parts, deadline, clock)
        if isinstance(found, bytes):
            return found
        parts = urlsplit(urljoin(parts.geturl(), found))
        if _origin(parts) != origin:
            raise ValueError(f"it redirects to another server; if {parts.geturl()[:200]} is right, make that the URL")
    raise ValueError(f"it redirects more than {REDIRECTS} times")


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _asked(parts: SplitResult, deadline: float, clock: Callable[[], float]) -> bytes | str:
    """The body, or where a redirect leads."""
    scheme, host, port = _origin(parts)
    if not host or port is None:
        raise ValueError("it has no host")
    timed = _Timed(deadline, clock)
    with closing(timed):
        timed.connect(host, port, tls=scheme == "https")
        connection = HTTPConnection(host, port)
        connection.sock = cast("socket.socket", _Lent(timed))
        try:
            path = parts._replace(scheme="", netloc="", path=parts.path or "/", fragment="").geturl()
            connection.request("GET", path, headers={"Accept": "application/json", "Connection": "close"})
            answer: HTTPResponse = connection.getresponse()
            if answer.status in _MOVED:
                return answer.getheader("Location", "")
            if answer.status != 200:
                raise ValueError(f"its server answers {answer.status} {answer.reason[:200]}")
            return _whole(answer)
        except HTTPException as error:
            raise ValueError(f"its server does not speak HTTP: {type(error).__name__}") from None


def _whole(file: IO[bytes] | HTTPResponse) -> bytes:
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    return data


class _Timed:
    """A socket of which everything together ends at the deadline: `settimeout` by itself is for each call anew."""

    def __init__(self, deadline: float, clock: Callable[[], float]) -> None:
        self._deadline, self._clock = deadline, clock
        self._socket: socket.socket | None = None

    def connect(self, host: str, port: int, *, tls: bool) -> None:
        self._socket = socket.create_connection((host, port), timeout=self._left())
        if tls:
            context = ssl.create_default_context()
            wrapped = context.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
            self._socket = wrapped
            self._ready()
            wrapped.do_handshake()

    def sendall(self, data: bytes) -> None:
        self._ready().sendall(data)

    def receive(self, buffer: Any) -> int:
        return self._ready().recv_into(buffer)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _ready(self) -> socket.socket:
        assert self._socket is not None
        self._socket.settimeout(self._left())
        return self._socket

    def _left(self) -> float:
        left = self._deadline - self._clock()
        if left <= 0:
            raise TimeoutError(f"its server has not answered in full within {TIMEOUT_S:.0f} s")
        return left


class _Lent:
    """What http.client needs of a socket. It closes it before the body is read, so that is left to the lender."""

    def __init__(self, timed: _Timed) -> None:
        self._timed = timed
        self.sendall = timed.sendall

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Received(self._timed))

    def close(self) -> None:
        return None


class _Received(io.RawIOBase):
    def __init__(self, timed: _Timed) -> None:
        self._timed = timed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._timed.receive(buffer)
