"""Listeners, and what all their connections share."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from dataclasses import dataclass
from functools import partial

from kafkalog_broker.log_rate import LogRate
from kafkalog_broker.net.connection import Connection
from kafkalog_broker.net.dispatch import Dispatch
from kafkalog_broker.net.limits import CreationRate, NetworkLimits
from kafkalog_broker.net.loop_watch import LoopWatch
from kafkalog_broker.net.read_turns import ReadTurns
from kafkalog_broker.net.response_stream import SendBuffer
from kafkalog_broker.net.unread import UnreadResponses
from kafkalog_broker.protocol.frames import receive_buffer
from kafkalog_broker.protocol.memory_pool import MemoryPool
from kafkalog_broker.turn import line
from kafkalog_spark.errors import KafkalogError

_logger = logging.getLogger(__name__)

IDLE_CHECKS = 10
"""Idle connections are looked for this many times in connections.max.idle.ms: one is closed up to 10 % late."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound listener: `port` is the real one where 0 was asked for."""

    name: str
    host: str
    port: int


class Network:
    """All listeners and connections of a broker. To be made and used inside its event loop.

    limits: may be replaced while it runs; connections that are open stay.
    """

    def __init__(self, dispatch: Dispatch, limits: NetworkLimits | None = None) -> None:
        self.dispatch = dispatch
        self.limits = limits or NetworkLimits()
        self.loop = asyncio.get_running_loop()
        self.line = line()
        self.memory = MemoryPool(self.limits.queued_max_request_bytes)
        self.watch = LoopWatch()
        self.reads = ReadTurns(self.loop)
        self.unread = UnreadResponses(self.loop)
        self.closed_lines = LogRate(_logger)
        self.receive_buffer = receive_buffer()
        self.send_buffer = SendBuffer()
        self.listeners: list[Listener] = []
        self._bound: list[tuple[Listener, socket.socket]] = []  # not served yet
        self._servers: list[asyncio.AbstractServer] = []
        self._connections: set[Connection] = set()
        self._per_ip: Counter[str] = Counter()
        self._creation_rate = CreationRate()
        self._refusing: set[str] = set()  # reasons that have been logged and still hold
        self._idle_check: asyncio.TimerHandle | None = None
        self._stopping = False

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def bind(self, name: str, host: str, port: int) -> Listener:
        """Take the address of a listener; connections are refused until `serve`. `host` empty: all addresses, IPv6 too
        where there is any. Raises KafkalogError when the address cannot be bound.
        """
        try:
            bound = await self.loop.run_in_executor(None, _bind, host, port, self.limits)
        except OSError as error:
            raise _not_bound(name, host, port, error) from None
        address = bound.getsockname()
        listener = Listener(name, str(address[0]), int(address[1]))
        self._bound.append((listener, bound))
        self.listeners.append(listener)
        return listener

    async def serve(self) -> None:
        """Accept connections on every listener that is bound. Raises KafkalogError when another process, which bound
        the same address at the same time, was first."""
        while self._bound:
            listener, bound = self._bound[0]
            connection = partial(Connection, self, listener.name)
            try:
                server = await self.loop.create_server(connection, sock=bound, backlog=self.limits.backlog)
            except OSError as error:
                raise _not_bound(listener.name, listener.host, listener.port, error) from None
            del self._bound[0]
            self._servers.append(server)
        if self._idle_check is None:
            self._check_idle()

    async def listen(self, name: str, host: str, port: int) -> Listener:
        """Bind a listener and serve it. Raises as `bind`."""
        listener = await self.bind(name, host, port)
        await self.serve()
        return listener

    def close_listeners(self) -> None:
        """Give the addresses back: of listeners that were never served, too."""
        for server in self._servers:
            server.close()
        for _, bound in self._bound:
            bound.close()
        self._bound.clear()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Accept nothing more, let requests in work finish for up to `grace_s` seconds, close all connections."""
        self._stopping = True
        if self._idle_check is not None:
            self._idle_check.cancel()
        self.unread.stop()
        self.close_listeners()
        for connection in list(self._connections):
            connection.stop()
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_s)
            if late:
                _logger.warning("%d connections did not finish in %.1f s and are cut", len(late), grace_s)
        # Those that are left have unsent bytes which their peers may never read.
        for connection in list(self._connections):
            connection.abort()
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        self.closed_lines.tell_left_out()
        await asyncio.sleep(0)  # transports report their end in the next round of the loop

    def admit(self, connection: Connection) -> str | None:
        """Count a new connection; the reason when there is no room for it. Each reason is logged once until it ends."""
        host = connection.info.host
        limits = self.limits
        allowed = limits.max_connections_per_ip_overrides.get(host, limits.max_connections_per_ip)
        reason = None
        if self._stopping:
            reason = "the broker is stopping"
        elif len(self._connections) >= limits.max_connections:
            reason = f"max.connections={limits.max_connections} are open"
        elif self._per_ip[host] >= allowed:
            reason = f"max.connections.per.ip={allowed} are open from {host}"
        elif (turn_in_s := self._turn_in_s()) is None:
            reason = f"more than max.connection.creation.rate={limits.max_connection_creation_rate} come"
        else:
            connection.turn_in_s = turn_in_s
        if reason is None:
            self._connections.add(connection)
            self._per_ip[host] += 1
        elif reason not in self._refusing:
            self._refusing.add(reason)
            _logger.warning("connection %s refused: %s; the same for others until one ends", connection.info, reason)
        return reason

    def gone(self, connection: Connection) -> None:
        """A connection has ended."""
        if connection in self._connections:
            self._connections.discard(connection)
            host = connection.info.host
            self._per_ip[host] -= 1
            if not self._per_ip[host]:
                del self._per_ip[host]
            if self._refusing:
                self._refusing.clear()

    def _turn_in_s(self) -> float | None:
        rate = self.limits.max_connection_creation_rate
        return self._creation_rate.wait_s(rate, self.limits.backlog, self.loop.time()) if rate else None

    def close_idle(self) -> int:
        """Close connections on which nothing has moved for connections.max.idle.ms; how many there were."""
        before = self.loop.time() - self.limits.max_idle_ms / 1000
        closed = 0
        for connection in list(self._connections):
            since = connection.idle_since()
            if since is not None and since < before:
                connection.close_idle()
                closed += 1
        return closed

    def _check_idle(self) -> None:
        if self.limits.max_idle_ms < 0:
            return
        self.close_idle()
        self.closed_lines.tell_left_out()
        self._idle_check = self.loop.call_later(
            max(self.limits.max_idle_ms / 1000 / IDLE_CHECKS, 0.01), self._check_idle
        )


def _not_bound(name: str, host: str, port: int, error: OSError) -> KafkalogError:
    return KafkalogError(
        f"listener {name} cannot be bound to {host or '*'}:{port}: {error.strerror or error}",
        hint="change `listeners`, or stop the process that has the port",
    )


def _bind(host: str, port: int, limits: NetworkLimits) -> socket.socket:
    """A bound socket. Names may need a look-up, so this runs off the loop."""
    if not host:
        both = socket.has_dualstack_ipv6()
        bound = socket.socket(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_STREAM)
        address: tuple[str, int] = ("", port)
        if both:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    else:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # As Java does it: one address, IPv4 where the name has one ("localhost" has both).
        family, _, _, _, where = min(found, key=lambda info: info[0] != socket.AF_INET)
        bound = socket.socket(family, socket.SOCK_STREAM)
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
