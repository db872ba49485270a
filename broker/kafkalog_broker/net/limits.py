"""Bounds on connections, in Kafka's property names."""

from __future__ import annotations

import resource
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import Source

UNLIMITED = 2**31 - 1
"""Kafka's default of properties that limit connections."""

FILES_FOR_LOGS = 0.25
"""The share of open files that connections leave to segments and everything else."""


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """`max_connections` counts over all listeners. A buffer size of -1 leaves it to the operating system."""

    max_request_bytes: int = 100 << 20  # socket.request.max.bytes
    queued_max_request_bytes: int = -1  # queued.max.request.bytes, -1: no limit
    max_connections: int = UNLIMITED  # max.connections
    max_connections_per_ip: int = UNLIMITED  # max.connections.per.ip
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = UNLIMITED  # max.connection.creation.rate, per second
    max_idle_ms: int = 600_000  # connections.max.idle.ms, negative: no limit
    backlog: int = 50  # socket.listen.backlog.size
    send_buffer_bytes: int = -1  # socket.send.buffer.bytes
    receive_buffer_bytes: int = -1  # socket.receive.buffer.bytes


class CreationRate:
    """When new connections may begin under max.connection.creation.rate.

    Those of one second come at once; what comes faster waits its turn. With Kafka it is the acceptor that waits, and
    connections in the socket's backlog (ConnectionQuotas); so no more than a backlog waits here.
    """

    def __init__(self) -> None:
        self._last_turn = 0.0  # in the clock of the caller

    def wait_s(self, rate: int, backlog: int, now_s: float) -> float | None:
        """How long a connection that comes now has to wait; None, and it takes no turn, when `backlog` of them wait.

        rate: connections a second, at least 1.
        """
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
    """max.connections as configured, or less, so that connections cannot take all open files from the logs.

    Without this bound, a flood of connections makes opening a segment fail, which takes a log directory offline.
    """
    if open_files == resource.RLIM_INFINITY:
        return configured
    return max(1, min(configured, int(open_files * (1 - FILES_FOR_LOGS))))


def network_limits(config: BrokerConfig, open_files: int) -> NetworkLimits:
    """What the configuration says, and `open_files`, how many files this process may open, allows."""
    return NetworkLimits(
        max_request_bytes=config.socket_request_max_bytes,
        queued_max_request_bytes=config.queued_max_request_bytes,
        max_connections=connections_within(open_files, config.max_connections),
        max_connections_per_ip=config.max_connections_per_ip,
        max_connection_creation_rate=config.max_connection_creation_rate,
        max_idle_ms=config.connections_max_idle_ms,
        backlog=_backlog(config),
        max_connections_per_ip_overrides=_per_ip(config.max_connections_per_ip_overrides),
        send_buffer_bytes=_buffer(config, "socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        receive_buffer_bytes=_buffer(config, "socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
    )


def _backlog(config: BrokerConfig) -> int:
    """As many as the system allows where nobody chose a number. Kafka has a thread that does nothing but accept, so its
    default of 50 is never full; here a burst of connections waits for a round of the event loop, and one that finds the
    backlog full tries again after a second."""
    chosen = any(layer[2] is not Source.DEFAULT for layer in config.sources("socket.listen.backlog.size"))
    return config.socket_listen_backlog_size if chosen else max(socket.SOMAXCONN, config.socket_listen_backlog_size)


def _buffer(config: BrokerConfig, name: str, size: int) -> int:
    """A socket buffer's size where somebody chose one; Kafka's default of 100 kB would switch off what Linux does by
    itself, which is faster."""
    return size if any(layer[2] is not Source.DEFAULT for layer in config.sources(name)) else -1


def _per_ip(text: str) -> dict[str, int]:
    """max.connections.per.ip.overrides: `host:number,...`."""
    pairs = (item.rpartition(":") for item in text.split(",") if item.strip())
    return {host.strip(): int(number) for host, _, number in pairs}
