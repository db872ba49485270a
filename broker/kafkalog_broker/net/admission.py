"""Which connections may open: bounded in all, for each address, and by how fast they come."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from kafkalog_broker.net.connection import Connection
from kafkalog_broker.net.limits import CreationRate, NetworkLimits

_logger = logging.getLogger(__name__)

WAITING = 1000
"""Refused connections that are kept for a while, so that trying again at once does not pay: each is an open file."""


class Admission:
    """`open`: the connections that were admitted and have not ended. clock: seconds.

    `limits` may be replaced; what is open stays.
    """

    def __init__(
        self, limits: NetworkLimits, clock: Callable[[], float], ip_wait_ms: Callable[[str], int] = lambda ip: 0
    ) -> None:
        """ip_wait_ms: told of a connection from an address; what connection_creation_rate has it wait, unserved, until
        it is closed."""
        self.limits = limits
        self.open: set[Connection] = set()
        self.waiting: set[Connection] = set()
        """Those that are refused, and closed a while later."""
        self.stopped = False
        """Nobody is admitted any more."""
        self.admitted = self.refused = 0
        """Connections so far."""
        self._clock = clock
        self._ip_wait_ms = ip_wait_ms
        self._per_ip: Counter[str] = Counter()
        self._creation_rate = CreationRate()
        self._refusing: set[str] = set()  # reasons that have been logged and still hold

    def admit(self, connection: Connection) -> str | None:
        """Count a new connection; the reason when there is no room for it. Each reason is logged once until it ends."""
        host = connection.info.host
        limits = self.limits
        allowed = limits.max_connections_per_ip_overrides.get(host, limits.max_connections_per_ip)
        reason = None
        if self.stopped:
            reason = "the broker is stopping"
        elif len(self.open) >= limits.max_connections:
            reason = f"max.connections={limits.max_connections} are open"
        elif self._per_ip[host] >= allowed:
            reason = f"max.connections.per.ip={allowed} are open from {host}"
        elif wait_ms := self._ip_wait_ms(host):
            reason = f"more come from {host} than its quota connection_creation_rate allows"
            if len(self.waiting) < WAITING:
                connection.turn_in_s = wait_ms / 1000
                self.waiting.add(connection)
        elif (turn_in_s := self._turn_in_s()) is None:
            reason = f"more than max.connection.creation.rate={limits.max_connection_creation_rate} come"
        else:
            connection.turn_in_s = turn_in_s
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

    def gone(self, connection: Connection) -> None:
        """A connection has ended."""
        self.waiting.discard(connection)
        if connection in self.open:
            self.open.discard(connection)
            host = connection.info.host
            self._per_ip[host] -= 1
            if not self._per_ip[host]:
                del self._per_ip[host]
            if self._refusing:
                self._refusing.clear()

    def _turn_in_s(self) -> float | None:
        rate = self.limits.max_connection_creation_rate
        return self._creation_rate.wait_s(rate, self.limits.backlog, self._clock()) if rate else None
