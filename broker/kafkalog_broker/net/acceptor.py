"""Accepts connections on a listening socket, a few in each iteration of the event loop.

The servers of asyncio and uvloop are not used. asyncio accepts the whole backlog at once. uvloop accepts one connection
per iteration, which is too slow when iterations are long, and drops connections silently on EMFILE.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from kafkalog_broker.runtime.log_rate import LogRate

ACCEPTS_PER_ITERATION = 8
"""Connections that one listener accepts in one iteration of the loop. The limit bounds the time until other connections
run."""

RETRY_DELAY_S = 0.1
"""Pause after a failed accept, usually for lack of file descriptors. The socket stays readable, so retrying immediately
would be a busy loop."""


class Acceptor:
    """Accepts connections from one bound socket and attaches a protocol to each. Used inside its event loop."""

    def __init__(
        self,
        bound: socket.socket,
        new_protocol: Callable[[], asyncio.BaseProtocol],
        loop: asyncio.AbstractEventLoop,
        failures: LogRate,
    ) -> None:
        """
        Args:
            bound: Bound, non-blocking socket; `close` closes it.
            new_protocol: Makes the protocol of an accepted connection.
            loop: The event loop.
            failures: Log of failed accepts.
        """
        self._socket = bound
        self._new_protocol = new_protocol
        self._loop = loop
        self._failures = failures
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    def start(self, backlog: int) -> None:
        """Listen. Raises OSError if another process has bound the same address and listened first."""
        self._socket.listen(backlog)
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Release the address and refuse the connections in the backlog. Closing twice is a no-op."""
        if self._retry is not None:
            self._retry.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    async def wait_attached(self) -> None:
        """After `close`: wait until every accepted connection has its protocol."""
        if self._opening:
            await asyncio.wait(self._opening)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_ITERATION):
            try:
                peer, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return  # the backlog is empty, or the peer has closed the connection
            except OSError as error:
                self._pause(error)
                return
            peer.setblocking(False)
            task = self._loop.create_task(self._attach(peer))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _attach(self, peer: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._new_protocol, peer)
        except OSError as error:
            peer.close()
            self._failures.log(logging.WARNING, "a connection could not be opened: %s", error)

    def _pause(self, error: OSError) -> None:
        """Stop accepting for RETRY_DELAY_S, as Kafka's acceptor does; new connections wait in the backlog."""
        hint = ": raise the limit of open files (ulimit -n)" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
        self._failures.log(logging.ERROR, "no connection can be accepted for now: %s%s", error.strerror or error, hint)
        self._loop.remove_reader(self._socket)
        self._retry = self._loop.call_later(RETRY_DELAY_S, self._loop.add_reader, self._socket, self._accept)
