"""Listening sockets: bound first, then asked for connections, a few in each round of the event loop.

asyncio's own server takes all that wait at once; uvloop's takes one a round, a hundred a second when rounds are long,
and closes without a word what there is no file left for. What is left in the backlog here makes the socket readable
again in the next round, so nothing is forgotten.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from kafkalog_broker.log_rate import LogRate
from kafkalog_broker.net.limits import NetworkLimits
from kafkalog_broker.net.tls_transport import TlsTransport

ACCEPTED_A_ROUND = 8
"""Connections that one listener takes in a round of the loop: some 2 ms with the first request of each."""

RETRY_S = 0.1
"""When accepting fails, mostly for want of files, the socket stays readable: to look at once would be a busy loop."""

_NOTHING_WRONG = (BlockingIOError, InterruptedError, ConnectionAbortedError)
"""No connection waits, or the one that did has gone."""


class Acceptor:
    """Takes connections from one bound socket and hands each to a protocol that `connection` makes.

    failed: where what goes wrong is logged, at a bounded rate. secure: makes the transport of a listener with TLS,
    which knows its protocol. To be used inside its event loop.
    """

    def __init__(
        self,
        bound: socket.socket,
        connection: Callable[[], asyncio.BaseProtocol],
        loop: asyncio.AbstractEventLoop,
        failed: LogRate,
        secure: Callable[[socket.socket], TlsTransport] | None = None,
    ) -> None:
        self._socket, self._connection, self._loop, self._failed = bound, connection, loop, failed
        self._secure = secure
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    def start(self, backlog: int) -> None:
        """Listen. Raises OSError when another process, which bound the same address at the same time, was first."""
        self._socket.listen(backlog)
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Give the address back; connections that wait to be accepted are refused. May be called again."""
        if self._retry is not None:
            self._retry.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    async def opened(self) -> None:
        """After `close`: every connection that was accepted has met its protocol."""
        if self._opening:
            await asyncio.wait(self._opening)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_A_ROUND):
            try:
                peer, _address = self._socket.accept()
            except _NOTHING_WRONG:
                return
            except OSError as error:
                self._pause(error)
                return
            peer.setblocking(False)
            task = self._loop.create_task(self._open(peer))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, peer: socket.socket) -> None:
        try:
            if self._secure is not None:
                self._secure(peer).start()
            else:
                await self._loop.connect_accepted_socket(self._connection, peer)
        except OSError as error:
            peer.close()
            self._failed.log(logging.WARNING, "a connection could not be opened: %s", error)

    def _pause(self, error: OSError) -> None:
        """Log it and go on, as Kafka's acceptor does; the connections that come meanwhile wait in the backlog."""
        hint = ": raise the limit of open files (ulimit -n)" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
        self._failed.log(logging.ERROR, "no connection can be accepted for now: %s%s", error.strerror or error, hint)
        self._loop.remove_reader(self._socket)
        self._retry = self._loop.call_later(RETRY_S, self._loop.add_reader, self._socket, self._accept)


def bind(host: str, port: int, limits: NetworkLimits) -> socket.socket:
    """A socket bound to an address that does not listen yet. `host` empty: all addresses, IPv6 too where there is any.

    Names may need a look-up, so this is not for the event loop's thread. Raises OSError.
    """
    if not host:
        both = socket.has_dualstack_ipv6()
        bound = socket.socket(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        address: tuple[str, int] = ("", port)
        if both:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    else:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # As Java does it: one address, IPv4 where the name has one ("localhost" has both).
        family, _, _, _, where = min(found, key=lambda info: info[0] != socket.AF_INET)
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio's TCP_NODELAY wants it named
        address = where[:2]  # type: ignore[assignment]
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit the sizes of the listening one.
        for option, size in (
            (socket.SO_SNDBUF, limits.send_buffer_bytes),
            (socket.SO_RCVBUF, limits.receive_buffer_bytes),
        ):
            if size > 0:
                bound.setsockopt(socket.SOL_SOCKET, option, size)
        bound.bind(address)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound
