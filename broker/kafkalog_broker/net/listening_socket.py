"""Listening sockets: resolving and binding the address of a listener, with the configured socket properties."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, replace

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import Source
from kafkalog_broker.config.listeners import Listener
from kafkalog_spark.errors import KafkalogError


@dataclass(frozen=True, slots=True)
class BoundListener:
    """A listener whose address this process owns. Clients are refused until an Acceptor listens on the socket."""

    listener: Listener  # with the bound address and port
    socket: socket.socket

    def close(self) -> None:
        """Release the address. Closing twice is a no-op."""
        self.socket.close()


async def bind_listener(listener: Listener, config: BrokerConfig) -> BoundListener:
    """Bind the address of a listener. An empty host binds all addresses, port 0 any free port.

    Raises:
        KafkalogError: If the address cannot be bound.
    """
    loop = asyncio.get_running_loop()
    try:
        bound = await loop.run_in_executor(None, open_socket, listener.host, listener.port, config)
    except OSError as error:
        raise bind_error(listener, error) from None
    address = bound.getsockname()
    return BoundListener(replace(listener, host=str(address[0]), port=int(address[1])), bound)


def bind_error(listener: Listener, error: OSError) -> KafkalogError:
    """Return the error of a listener whose address cannot be bound or listened on."""
    return KafkalogError(
        f"listener {listener.name} cannot be bound to {listener.host or '*'}:{listener.port}: "
        f"{error.strerror or error}",
        hint="change `listeners`, or stop the process that has the port",
    )


def backlog(config: BrokerConfig) -> int:
    """Return the number of connections that may wait to be accepted (socket.listen.backlog.size).

    The default is the system's maximum instead of Kafka's 50. Kafka has a thread that only accepts, so its backlog is
    hardly ever full; here a burst waits for the next iteration of the event loop, and a client that finds the backlog
    full retries its SYN after a second.
    """
    size = config.socket_listen_backlog_size
    return size if _is_set(config, "socket.listen.backlog.size") else max(socket.SOMAXCONN, size)


def open_socket(host: str, port: int, config: BrokerConfig) -> socket.socket:
    """Create a bound, non-blocking socket that does not listen yet. Blocks if `host` needs a look-up.

    Args:
        host: Name or address. Empty: all addresses, of IPv6 too if the system has it.
        port: 0 binds any free port.
        config: Sizes of the socket's buffers.

    Raises:
        OSError: If the address cannot be resolved or bound.
    """
    if not host:
        is_dual_stack = socket.has_dualstack_ipv6()
        bound = socket.socket(
            socket.AF_INET6 if is_dual_stack else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )
        address: tuple[str, int] = ("", port)
        if is_dual_stack:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    else:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # As in Java, one address is bound: the IPv4 one if the name has both, like "localhost".
        family, _, _, _, resolved = min(infos, key=lambda info: info[0] != socket.AF_INET)
        # The protocol is given because asyncio sets TCP_NODELAY only on sockets with IPPROTO_TCP.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        address = resolved[:2]  # type: ignore[assignment]
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _set_buffer_sizes(bound, config)
        bound.bind(address)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound


def resolve_address(host: str) -> str:
    """Resolve a host name, to an IPv4 address if it has one (Java: InetAddress.getByName).

    Blocks.

    Raises:
        OSError: If the name cannot be resolved.
    """
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(min(infos, key=lambda info: info[0] != socket.AF_INET)[4][0])


def _set_buffer_sizes(bound: socket.socket, config: BrokerConfig) -> None:
    """Set buffer sizes only if they are configured.

    Accepted sockets inherit the sizes of the listening socket. Kafka's default of 100 kB would disable the automatic
    tuning of Linux, which is faster.
    """
    for option, name, size in (
        (socket.SO_SNDBUF, "socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, "socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
    ):
        if size > 0 and _is_set(config, name):
            bound.setsockopt(socket.SOL_SOCKET, option, size)


def _is_set(config: BrokerConfig, name: str) -> bool:
    """Return True if any source besides Kafka's defaults sets the property."""
    return any(source is not Source.DEFAULT for _, _, source in config.sources(name))
