"""Listening sockets: bound first, then asked for connections, a few in each round of the event loop.

asyncio's own server takes all that wait at once; uvloop's takes one a round, a hundred a second when rounds are long,
and closes without a word what there is no file left for.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import Source
from kafkalog_broker.net.connection import Connection
from kafkalog_broker.runtime.process import LogRate

UNLIMITED = 2**31 - 1  # Kafka's default of properties that limit connections

FILES_FOR_LOGS = 0.25  # the share of open files that connections leave to segments and everything else


class CreationRate:
    """When new connections may begin under max.connection.creation.rate: those of a second at once, others in their
    turn. Kafka's wait in the socket's backlog (ConnectionQuotas); so no more than a backlog waits here."""

    def __init__(self) -> None:
        self._last_turn = 0.0  # in the clock of the caller

    def wait_s(self, rate: int, backlog: int, now_s: float) -> float | None:
        """How long a connection that comes now has to wait; None, and it takes no turn, when `backlog` of them wait.
        rate: connections a second, at least 1."""
        if rate >= UNLIMITED:
            return 0.0
        turn = max(self._last_turn, now_s - 1.0) + 1.0 / rate
        wait = turn - now_s
        if wait * rate > max(backlog, 1):
            return None
        self._last_turn = turn
        return max(0.0, wait)


def raise_open_files_limit() -> int:
    """Allow this process as many open files as the system lets it have, and return that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # the system allows less than it says (macOS): what there is must do
            return soft
    return hard


def connections_within(open_files: int, configured: int) -> int:
    """max.connections as configured, or less: where a flood of connections takes all open files, opening a segment
    fails, which takes a log directory offline."""
    if open_files == resource.RLIM_INFINITY:
        return configured
    return max(1, min(configured, int(open_files * (1 - FILES_FOR_LOGS))))


def _chosen(config: BrokerConfig, name: str, size: int, unless: int) -> int:
    return size if any(layer[2] is not Source.DEFAULT for layer in config.sources(name)) else unless


def backlog(config: BrokerConfig) -> int:
    """Connections that may wait to be accepted. Kafka has a thread that does nothing but accept, so its default of 50
    is never full; here a burst waits for a round of the event loop, and a connection that finds the backlog full tries
    again after a second."""
    size = config.socket_listen_backlog_size
    return _chosen(config, "socket.listen.backlog.size", size, max(socket.SOMAXCONN, size))


ACCEPTED_A_ROUND = 8
"""Connections that one listener takes in a round of the loop: some 2 ms with the first request of each."""

RETRY_S = 0.1
"""When accepting fails, mostly for want of files, the socket stays readable: to look at once would be a busy loop."""


class Acceptor:
    """Takes connections from one bound socket and hands each to a protocol that `connection` makes.

    failed: where what goes wrong is logged, at a bounded rate. To be used inside its event loop.
    """

    def __init__(
        self,
        bound: socket.socket,
        connection: Callable[[], asyncio.BaseProtocol],
        loop: asyncio.AbstractEventLoop,
        failed: LogRate,
    ) -> None:
        self._socket, self._connection, self._loop, self._failed = bound, connection, loop, failed
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
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # none waits, or it has gone
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
            await self._loop.connect_accepted_socket(self._connection, peer)
        except OSError as error:
            peer.close()
            self._failed.log(logging.WARNING, "a connection could not be opened: %s", error)

    def _pause(self, error: OSError) -> None:
        """As Kafka's acceptor does; the connections that come meanwhile wait in the backlog."""
        hint = ": raise the limit of open files (ulimit -n)" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
        self._failed.log(logging.ERROR, "no connection can be accepted for now: %s%s", error.strerror or error, hint)
        self._loop.remove_reader(self._socket)
        self._retry = self._loop.call_later(RETRY_S, self._loop.add_reader, self._socket, self._accept)


def bind(host: str, port: int, config: BrokerConfig) -> socket.socket:
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
        # Accepted sockets inherit the sizes of the listening one. Kafka's default of 100 kB would switch off what Linux
        # does by itself, which is faster.
        for option, name, wanted in (
            (socket.SO_SNDBUF, "socket.send.buffer.bytes", config.socket_send_buffer_bytes),
            (socket.SO_RCVBUF, "socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
        ):
            if (size := _chosen(config, name, wanted, -1)) > 0:
                bound.setsockopt(socket.SOL_SOCKET, option, size)
        bound.bind(address)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound


def address_of(host: str) -> str:
    """Address of a host name, IPv4 where it has one, as Java's InetAddress.getByName. Blocks. Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(min(found, key=lambda info: info[0] != socket.AF_INET)[4][0])


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


# Which connections may open: bounded in all, for each address, and by how fast they come.

_logger = logging.getLogger(__name__)

WAITING = 1000
"""Refused connections that are kept for a while, so that trying again at once does not pay: each is an open file."""


class Admission:
    """`open`: the connections that were admitted and have not ended, whatever the limits are now. clock: seconds."""

    def __init__(
        self, config: BrokerConfig, open_files: int, clock: Callable[[], float], ip_wait_ms: Callable[[str], int]
    ) -> None:
        """open_files: how many files this process may open. ip_wait_ms: told of a connection from an address; what
        connection_creation_rate has it wait, unserved, until it is closed."""
        self._open_files = open_files
        self.use(config)
        self.open: set[Connection] = set()
        self.waiting: set[Connection] = set()  # those that are refused, and closed a while later
        self.stopped = False  # nobody is admitted any more
        self.admitted = self.refused = 0  # connections so far
        self._clock = clock
        self._ip_wait_ms = ip_wait_ms
        self._per_ip: Counter[str] = Counter()
        self._creation_rate = CreationRate()
        self._refusing: set[str] = set()  # reasons that have been logged and still hold

    def use(self, config: BrokerConfig) -> None:
        """Limits by this configuration, from now on; those of `host_names` once `limit_host` tells their addresses."""
        self.config, self._backlog = config, backlog(config)
        self._max_connections = connections_within(self._open_files, config.max_connections)
        per_ip = (item.rpartition(":") for item in config.max_connections_per_ip_overrides.split(",") if item.strip())
        self._of_host = {host.strip(): int(number) for host, _, number in per_ip}
        self._of_ip = {str(ip_address(host)): number for host, number in self._of_host.items() if _is_address(host)}

    @property
    def host_names(self) -> list[str]:
        """Host names in max.connections.per.ip.overrides."""
        return [host for host in self._of_host if not _is_address(host)]

    def limit_host(self, name: str, address: str) -> None:
        """Apply the limit of a host name to its address, unless the configuration has changed meanwhile."""
        if name in self._of_host:
            self._of_ip.setdefault(address, self._of_host[name])

    def admit(self, connection: Connection) -> str | None:
        """Count a new connection; the reason when there is no room for it. Each reason is logged once until it ends."""
        host = connection.info.host
        # The rates count the connection, so each is checked only if no limit before it refuses the connection.
        reason = self._no_room(host) or self._beyond_ip_quota(connection) or self._beyond_rate(connection)
        if reason is None:
            self.admitted += 1
            self.open.add(connection)
            self._per_ip[host] += 1
            return None
        self.refused += 1
        if reason not in self._refusing:
            self._refusing.add(reason)
            _logger.warning("connection %s refused: %s; the same for others until one ends", connection.info, reason)
        return reason

    def _no_room(self, host: str) -> str | None:
        if self.stopped:
            return "the broker is stopping"
        if len(self.open) >= self._max_connections:
            return f"max.connections={self._max_connections} are open"
        allowed = self._of_ip.get(host, self.config.max_connections_per_ip)
        if self._per_ip[host] >= allowed:
            return f"max.connections.per.ip={allowed} are open from {host}"
        return None

    def _beyond_ip_quota(self, connection: Connection) -> str | None:
        host = connection.info.host
        wait_ms = self._ip_wait_ms(host)
        if not wait_ms:
            return None
        if len(self.waiting) < WAITING:
            connection.turn_in_s = wait_ms / 1000
            self.waiting.add(connection)
        return f"more come from {host} than its quota connection_creation_rate allows"

    def _beyond_rate(self, connection: Connection) -> str | None:
        rate = self.config.max_connection_creation_rate
        turn_in_s = self._creation_rate.wait_s(rate, self._backlog, self._clock())
        if turn_in_s is None:
            return f"more than max.connection.creation.rate={rate} come"
        connection.turn_in_s = turn_in_s
        return None

    def gone(self, connection: Connection) -> None:
        self.waiting.discard(connection)
        if connection in self.open:
            self.open.discard(connection)
            host = connection.info.host
            self._per_ip[host] -= 1
            if not self._per_ip[host]:
                del self._per_ip[host]
            if self._refusing:
                self._refusing.clear()
