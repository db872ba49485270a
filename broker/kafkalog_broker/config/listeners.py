"""The properties listeners and advertised.listeners: `PLAINTEXT://127.0.0.1:9092,INTERNAL://[::1]:0`."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kafkalog_broker.config.definition import ConfigError, invalid_value

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_LISTENER = re.compile(r"([A-Za-z0-9._-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:/\[\]\s]*)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Listener:
    """Name and address of a listener. An empty host means all interfaces, port 0 any free port."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{format_address(self.host, self.port)}"


def format_address(host: str, port: int) -> str:
    """Return host:port, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listeners(name: str, items: Iterable[str]) -> tuple[Listener, ...]:
    """Parse a list of listeners.

    Args:
        name: The property, for error messages.
        items: Items of its value.

    Raises:
        ConfigError: If an item is malformed, or two have the same name or address.
    """
    listeners: list[Listener] = []
    for item in items:
        match = _LISTENER.fullmatch(item)
        if match is None or int(match[4]) > 65535:
            raise invalid_value(name, item, "expected NAME://HOST:PORT, e.g. PLAINTEXT://127.0.0.1:9092")
        listeners.append(Listener(match[1].upper(), match[2] or match[3] or "", int(match[4])))
    for attribute, keys in (
        ("name", [listener.name for listener in listeners]),
        ("port", [(listener.host, listener.port) for listener in listeners if listener.port and name == "listeners"]),
    ):
        if len(set(keys)) != len(keys):
            raise ConfigError(
                f"Each listener must have a different {attribute}, {name}: {','.join(map(str, listeners))}", name=name
            )
    return tuple(listeners)


def parse_security_map(text: str) -> dict[str, str]:
    """Parse `NAME:PROTOCOL,...` and return the protocols by name. Raises ConfigError."""
    name = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        listener, separator, protocol = item.rpartition(":")
        if not separator or protocol.upper() not in PROTOCOLS:
            raise invalid_value(name, item, f"expected NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}")
        protocols[listener.strip().upper()] = protocol.upper()
    return protocols


def check_client_listeners(served: Sequence[Listener], protocols: Mapping[str, str]) -> None:
    """Raise ConfigError if there is no listener for clients, or one has no security protocol."""
    if not served:
        raise ConfigError("listeners names no listener for clients, e.g. PLAINTEXT://127.0.0.1:9092", name="listeners")
    for listener in served:
        if listener.name not in protocols:
            reason = f"No security protocol defined for listener {listener.name} in listener.security.protocol.map"
            raise ConfigError(f"listeners: {reason}", name="listeners")


def advertised_endpoints(served: tuple[Listener, ...], configured: tuple[Listener, ...]) -> tuple[Listener, ...]:
    """Return the endpoints that clients use: `configured` (advertised.listeners), or else the listeners themselves.

    An empty host is replaced by this machine's host name.

    Raises:
        ConfigError: If a name is not a listener, or no client can connect to an address.
    """
    name = "advertised.listeners"
    endpoints = configured or served
    served_names = {listener.name for listener in served}
    for listener in endpoints:
        if listener.name not in served_names:
            reason = f"names {listener.name}, which is not in listeners ({', '.join(sorted(served_names))})"
            raise ConfigError(f"{name} {reason}", name=name)
        if listener.host in ("0.0.0.0", "::"):
            reason = f"{name} cannot use the nonroutable meta-address {listener.host}"
            raise ConfigError(reason, name=name, hint="use a routable IP address or a host name")
    return tuple(replace(listener, host=listener.host or _host_name()) for listener in endpoints)


def with_bound_ports(endpoints: tuple[Listener, ...], bound: Mapping[str, int]) -> tuple[Listener, ...]:
    """Replace port 0 by the bound port of the listener of the same name."""
    return tuple(listener if listener.port else replace(listener, port=bound[listener.name]) for listener in endpoints)


def _host_name() -> str:
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"  # with a name that does not resolve, not even local clients could connect
    return name
