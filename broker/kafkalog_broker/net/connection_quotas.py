"""Limits on connections: in total, per address, and by the rate of new ones (Kafka: ConnectionQuotas)."""

from __future__ import annotations

import logging
import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.net.creation_rate import CreationRate
from kafkalog_broker.net.listening_socket import backlog
from kafkalog_broker.net.open_connection import OpenConnection

FILES_FOR_LOGS = 0.25  # fraction of the limit of open files that is reserved for segments and other files

MAX_HELD = 1000
"""Limit on refused connections that are held open for a while to slow down clients that reconnect immediately. Each is
an open file."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Admission:
    """Decision about a new connection.

    Attributes:
        refusal: Why the connection is refused, or None if it is admitted.
        delay_s: Seconds until the first request of an admitted connection is handled, or a refused one is closed.
    """

    refusal: str | None = None
    delay_s: float = 0.0


class ConnectionQuotas:
    """Counts connections and decides about new ones. Not thread-safe; call from the event loop.

    Attributes:
        open: Admitted connections that have not ended. Lowering a limit closes none of them.
        held: Refused connections that stay open until their delay is over.
        admitted, refused: Number of connections so far.
    """

    def __init__(
        self, config: BrokerConfig, open_files: int, clock: Callable[[], float], ip_wait_ms: Callable[[str], int]
    ) -> None:
        """
        Args:
            config: Limits on connections.
            open_files: Number of files that this process may open.
            clock: Monotonic seconds.
            ip_wait_ms: Records a new connection from an address. Returns how long the quota connection_creation_rate of
                the address refuses it, or 0 if the connection is within the quota.
        """
        self._open_files = open_files
        self.update_config(config)
        self.open: set[OpenConnection] = set()
        self.held: set[OpenConnection] = set()
        self.admitted = self.refused = 0
        self._is_stopped = False
        self._clock = clock
        self._ip_wait_ms = ip_wait_ms
        self._per_ip: Counter[str] = Counter()
        self._creation_rate = CreationRate()
        self._logged_refusals: set[str] = set()  # reasons that have been logged since a connection last ended

    def update_config(self, config: BrokerConfig) -> None:
        """Apply new limits. Limits of `host_names` apply once `limit_host` is called with their addresses."""
        self.config, self._backlog = config, backlog(config)
        self._max_connections = limit_to_open_files(self._open_files, config.max_connections)
        overrides = (
            item.rpartition(":") for item in config.max_connections_per_ip_overrides.split(",") if item.strip()
        )
        self._host_limits = {host.strip(): int(number) for host, _, number in overrides}
        self._ip_limits = {str(ip_address(host)): limit for host, limit in self._host_limits.items() if _is_ip(host)}

    @property
    def host_names(self) -> list[str]:
        """Host names in max.connections.per.ip.overrides."""
        return [host for host in self._host_limits if not _is_ip(host)]

    def limit_host(self, name: str, address: str) -> None:
        """Apply the limit of a host name to its address, unless the configuration no longer has the name."""
        if name in self._host_limits:
            self._ip_limits.setdefault(address, self._host_limits[name])

    def stop(self) -> None:
        """Refuse all connections from now on."""
        self._is_stopped = True

    def admit(self, connection: OpenConnection) -> Admission:
        """Decide about a new connection and count it. Log each reason for refusals once until a connection ends."""
        host = connection.info.host
        # The rate limits count each connection that they check, so those that an earlier limit refuses must not reach
        # them.
        admission = self._check_counts(host) or self._check_ip_quota(connection) or self._check_creation_rate()
        if admission.refusal is None:
            self.admitted += 1
            self.open.add(connection)
            self._per_ip[host] += 1
        else:
            self.refused += 1
            if admission.refusal not in self._logged_refusals:
                self._logged_refusals.add(admission.refusal)
                _logger.warning(
                    "connection %s refused: %s; not logged again for others until a connection ends",
                    connection.info,
                    admission.refusal,
                )
        return admission

    def release(self, connection: OpenConnection) -> None:
        """Forget a connection that has ended, admitted or refused."""
        self.held.discard(connection)
        if connection in self.open:
            self.open.discard(connection)
            host = connection.info.host
            self._per_ip[host] -= 1
            if not self._per_ip[host]:
                del self._per_ip[host]
            if self._logged_refusals:
                self._logged_refusals.clear()

    def _check_counts(self, host: str) -> Admission | None:
        """Return a refusal if too many connections are open, else None."""
        if self._is_stopped:
            return Admission("the broker is stopping")
        if len(self.open) >= self._max_connections:
            return Admission(f"max.connections={self._max_connections} are open")
        limit = self._ip_limits.get(host, self.config.max_connections_per_ip)
        if self._per_ip[host] >= limit:
            return Admission(f"max.connections.per.ip={limit} are open from {host}")
        return None

    def _check_ip_quota(self, connection: OpenConnection) -> Admission | None:
        """Return a refusal if the address exceeds its quota connection_creation_rate, else None."""
        host = connection.info.host
        wait_ms = self._ip_wait_ms(host)
        if not wait_ms:
            return None
        refusal = f"connections from {host} exceed its quota connection_creation_rate"
        if len(self.held) >= MAX_HELD:
            return Admission(refusal)
        self.held.add(connection)
        return Admission(refusal, wait_ms / 1000)

    def _check_creation_rate(self) -> Admission:
        rate = self.config.max_connection_creation_rate
        delay_s = self._creation_rate.reserve_start(rate, self._backlog, self._clock())
        if delay_s is None:
            return Admission(f"new connections exceed max.connection.creation.rate={rate}")
        return Admission(delay_s=delay_s)


def limit_to_open_files(open_files: int, configured: int) -> int:
    """Return max.connections, lowered if that many connections would leave too few files for segments.

    If connections used up all open files, opening a segment would fail and take a log directory offline.
    """
    if open_files == resource.RLIM_INFINITY:
        return configured
    return max(1, min(configured, int(open_files * (1 - FILES_FOR_LOGS))))


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
