"""Bounds on connections, in Kafka's property names."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import dataclass, field

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
