"""Listeners, and what all their connections share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.net.acceptor import Acceptor, Admission, address_of, backlog, bind
from kafkalog_broker.net.connection import Connection, Shared
from kafkalog_broker.net.dispatch import Dispatch, Gate
from kafkalog_broker.net.tls_transport import TlsTransport, TlsTurns
from kafkalog_broker.runtime.process import LogRate
from kafkalog_spark.errors import KafkalogError

if TYPE_CHECKING:
    from kafkalog_broker.security.tls_context import ListenerTls

_logger = logging.getLogger(__name__)

IDLE_CHECKS = 10
"""Idle connections are looked for this many times in connections.max.idle.ms: one is closed up to 10 % late."""


Secured = Callable[[], "ListenerTls"]  # TLS settings of the next connection


class Network:
    """All listeners and connections of a broker. To be made and used inside its event loop."""

    def __init__(
        self,
        dispatch: Dispatch,
        config: BrokerConfig,
        open_files: int,
        ip_wait_ms: Callable[[str], int] = lambda ip: 0,
    ) -> None:
        """config, open_files, ip_wait_ms: as Admission."""
        self.loop = loop = asyncio.get_running_loop()
        self.admission = admission = Admission(config, open_files, loop.time, ip_wait_ms)
        queued_bytes = config.queued_max_request_bytes
        self.shared = Shared(dispatch, admission.admit, admission.gone, queued_bytes, LogRate(_logger))
        self.tls_turns = TlsTurns(loop, self.shared.watch)
        self._acceptors: dict[Listener, Acceptor] = {}
        self._idle_check: asyncio.TimerHandle | None = None
        self.host_look_up: asyncio.Task[None] | None = None

    def use(self, config: BrokerConfig) -> None:
        """Limits by this configuration, from now on; those of host names as soon as they are looked up."""
        self.admission.use(config)
        if self.host_look_up is not None:
            self.host_look_up.cancel()
        names = self.admission.host_names
        self.host_look_up = self.loop.create_task(self._look_up_hosts(names)) if names else None

    async def _look_up_hosts(self, names: list[str]) -> None:
        for name in names:
            try:
                address = await self.loop.run_in_executor(None, address_of, name)
            except OSError as error:
                _logger.warning(
                    "max.connections.per.ip.overrides: the limit of %s has no effect, its address is not found: %s",
                    name, error.strerror or error,
                )  # fmt: skip
            else:
                self.admission.limit_host(name, address)

    async def bind(self, listener: Listener, tls: Secured | None = None, gate: Gate | None = None) -> Listener:
        """Take the address of a listener; connections are refused until `serve`. `host` empty: all addresses, IPv6 too
        where there is any. Returns it with the real port. Raises KafkalogError when the address cannot be bound."""
        try:
            bound = await self.loop.run_in_executor(None, bind, listener.host, listener.port, self.admission.config)
        except OSError as error:
            raise _not_bound(listener, error) from None
        address = bound.getsockname()
        listener = replace(listener, host=str(address[0]), port=int(address[1]))

        def protocol() -> asyncio.BaseProtocol:
            connection = self.new_connection(listener.name, gate)
            return connection if tls is None else TlsTransport(self.loop, connection, self.tls_turns, tls)

        self._acceptors[listener] = Acceptor(bound, protocol, self.loop, self.shared.closed_lines)
        return listener

    @property
    def listeners(self) -> list[Listener]:
        return list(self._acceptors)

    async def serve(self) -> None:
        """Accept connections on every listener that is bound. Raises KafkalogError, see Acceptor.start."""
        for listener, acceptor in self._acceptors.items():
            try:
                acceptor.start(backlog(self.admission.config))
            except OSError as error:
                raise _not_bound(listener, error) from None
        if self._idle_check is None:
            self._check_idle()

    def new_connection(self, listener: str, gate: Gate | None = None) -> Connection:
        """For a socket that was accepted by the listener of that name."""
        return Connection(self.shared, listener, self.admission.config.socket_request_max_bytes, gate)

    def close_listeners(self) -> None:
        """Give the addresses back: of listeners that were never served, too."""
        for acceptor in self._acceptors.values():
            acceptor.close()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Accept nothing more, let requests in work finish for up to `grace_s` seconds, close all connections."""
        connections = self.admission.open
        self.admission.stopped = True
        for pending in (self._idle_check, self.host_look_up):
            if pending is not None:
                pending.cancel()
        self.shared.unread.stop()
        self.close_listeners()
        for acceptor in self._acceptors.values():
            await acceptor.opened()
        for connection in list(self.admission.waiting):
            connection.abort()
        for connection in list(connections):
            connection.stop()
        tasks = [connection.task for connection in connections if connection.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_s)
            if late:
                _logger.warning("%d connections did not finish in %.1f s and are cut", len(late), grace_s)
        # Those that are left have unsent bytes which their peers may never read.
        for connection in list(connections):
            connection.abort()
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        self.shared.closed_lines.tell_left_out()
        await asyncio.sleep(0)  # transports report their end in the next round of the loop

    def close_idle(self) -> int:
        """Close connections on which nothing has moved for connections.max.idle.ms; how many there were."""
        before = self.loop.time() - self.admission.config.connections_max_idle_ms / 1000
        return sum(connection.close_idle(before) for connection in list(self.admission.open))

    def _check_idle(self) -> None:
        if self.admission.config.connections_max_idle_ms < 0:
            return
        self.close_idle()
        self.shared.closed_lines.tell_left_out()
        self._idle_check = self.loop.call_later(
            max(self.admission.config.connections_max_idle_ms / 1000 / IDLE_CHECKS, 0.01), self._check_idle
        )


def _not_bound(listener: Listener, error: OSError) -> KafkalogError:
    return KafkalogError(
        f"listener {listener.name} cannot be bound to {listener.host or '*'}:{listener.port}: "
        f"{error.strerror or error}",
        hint="change `listeners`, or stop the process that has the port",
    )
