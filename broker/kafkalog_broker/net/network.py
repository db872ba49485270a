"""The listeners and connections of a broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.net.acceptor import Acceptor
from kafkalog_broker.net.connection import Connection
from kafkalog_broker.net.connection_quotas import ConnectionQuotas
from kafkalog_broker.net.dispatch import Dispatch
from kafkalog_broker.net.listening_socket import BoundListener, backlog, bind_error, resolve_address
from kafkalog_broker.net.sasl_gate import NewSaslGate
from kafkalog_broker.net.shared_resources import SharedResources
from kafkalog_broker.net.tls_transport import TlsTransport
from kafkalog_broker.net.tls_turns import TlsTurns
from kafkalog_broker.runtime.log_rate import LogRate

if TYPE_CHECKING:
    from kafkalog_broker.security.listener_tls import ListenerTls

IDLE_CHECKS = 10
"""Checks for idle connections in each period of connections.max.idle.ms, so an idle connection is closed up to 10 %
late."""

_logger = logging.getLogger(__name__)


class Network:
    """All listeners and connections. Created and used inside the event loop that runs them.

    Attributes:
        quotas: Limits on connections, and the open connections.
        shared: Resources of all connections.
        tls_turns: Schedules TLS handshakes.
        host_look_up: Resolves the host names of max.connections.per.ip.overrides; None if there are none.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        config: BrokerConfig,
        open_files: int,
        ip_wait_ms: Callable[[str], int] = lambda ip: 0,
    ) -> None:
        """
        Args:
            dispatch: Handles requests.
            config: Limits of connections and requests.
            open_files: Number of files that this process may open.
            ip_wait_ms: See `ConnectionQuotas`.
        """
        self.loop = loop = asyncio.get_running_loop()
        self.quotas = ConnectionQuotas(config, open_files, loop.time, ip_wait_ms)
        self.shared = SharedResources(dispatch, self.quotas, config.queued_max_request_bytes, LogRate(_logger))
        self.tls_turns = TlsTurns(loop, self.shared.loop_watch)
        self.host_look_up: asyncio.Task[None] | None = None
        self._acceptors: dict[Listener, Acceptor] = {}
        self._idle_check: asyncio.TimerHandle | None = None

    @property
    def listeners(self) -> list[Listener]:
        return list(self._acceptors)

    def update_config(self, config: BrokerConfig) -> None:
        """Apply new limits. Those of host names apply once the names are resolved."""
        self.quotas.update_config(config)
        if self.host_look_up is not None:
            self.host_look_up.cancel()
        names = self.quotas.host_names
        self.host_look_up = self.loop.create_task(self._look_up_hosts(names)) if names else None

    def add_listener(
        self,
        bound: BoundListener,
        current_tls: Callable[[], ListenerTls] | None = None,
        new_gate: NewSaslGate | None = None,
    ) -> None:
        """Add a bound listener; clients are refused until `serve`.

        Args:
            bound: The listener; `close_listeners` closes its socket.
            current_tls: Returns the TLS settings of the next connection; None for a listener without TLS.
            new_gate: Makes the SASL gate of a connection; None for a listener without SASL.
        """
        name = bound.listener.name

        def new_protocol() -> asyncio.BaseProtocol:
            connection = self.new_connection(name, new_gate, is_encrypted=current_tls is not None)
            return (
                connection if current_tls is None else TlsTransport(self.loop, connection, self.tls_turns, current_tls)
            )

        self._acceptors[bound.listener] = Acceptor(bound.socket, new_protocol, self.loop, self.shared.close_log)

    def new_connection(
        self, listener: str, new_gate: NewSaslGate | None = None, *, is_encrypted: bool = False
    ) -> Connection:
        """Make the protocol of a socket that the named listener has accepted."""
        max_request_bytes = self.quotas.config.socket_request_max_bytes
        return Connection(self.shared, listener, max_request_bytes, new_gate, is_encrypted=is_encrypted)

    async def serve(self) -> None:
        """Accept connections on every listener.

        Raises:
            KafkalogError: If another process listens on the address of a listener.
        """
        for listener, acceptor in self._acceptors.items():
            try:
                acceptor.start(backlog(self.quotas.config))
            except OSError as error:
                raise bind_error(listener, error) from None
        if self._idle_check is None:
            self._check_idle()

    def close_listeners(self) -> None:
        """Close all listening sockets, served or not. Idempotent."""
        for acceptor in self._acceptors.values():
            acceptor.close()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Close the listeners, let requests in work finish for up to `grace_s` seconds, and close all connections."""
        connections = self.quotas.open
        self.quotas.stop()
        for pending in (self._idle_check, self.host_look_up):
            if pending is not None:
                pending.cancel()
        self.shared.unread.stop()
        self.close_listeners()
        for acceptor in self._acceptors.values():
            await acceptor.wait_attached()
        for connection in list(self.quotas.held):
            connection.abort()
        for connection in list(connections):
            connection.stop()
        tasks = [connection.task for connection in connections if connection.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_s)
            if late:
                _logger.warning("closing %d connections that are still busy after %.1f s", len(late), grace_s)
        # The others have unsent bytes that their peers may never read.
        for connection in list(connections):
            connection.abort()
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        self.shared.close_log.report_suppressed()
        await asyncio.sleep(0)  # transports call connection_lost in the next iteration of the loop

    def close_idle(self) -> int:
        """Close connections on which no byte has moved for connections.max.idle.ms, and return their number."""
        before = self.loop.time() - self.quotas.config.connections_max_idle_ms / 1000
        return sum(connection.close_if_idle(before) for connection in list(self.quotas.open))

    async def _look_up_hosts(self, names: list[str]) -> None:
        for name in names:
            try:
                address = await self.loop.run_in_executor(None, resolve_address, name)
            except OSError as error:
                _logger.warning(
                    "max.connections.per.ip.overrides: the limit of %s has no effect, its address is not found: %s",
                    name, error.strerror or error,
                )  # fmt: skip
            else:
                self.quotas.limit_host(name, address)

    def _check_idle(self) -> None:
        max_idle_ms = self.quotas.config.connections_max_idle_ms
        if max_idle_ms < 0:
            return
        self.close_idle()
        self.shared.close_log.report_suppressed()
        self._idle_check = self.loop.call_later(max(max_idle_ms / 1000 / IDLE_CHECKS, 0.01), self._check_idle)
