"""Listeners as server.properties names them: `PLAINTEXT://127.0.0.1:9092,INTERNAL://[::1]:0`."""

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
    """`host` "" means all interfaces. `port` 0: one that is free."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{format_address(self.host, self.port)}"


def format_address(host: str, port: int) -> str:
    """host:port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listeners(name: str, items: Iterable[str]) -> tuple[Listener, ...]:
    """`name`: the property, for errors. Raises ConfigError: not of that form, or two of one name or one address."""
    found: list[Listener] = []
    for item in items:
        match = _LISTENER.fullmatch(item)
        if match is None or int(match[4]) > 65535:
            raise invalid_value(name, item, "expected NAME://HOST:PORT, e.g. PLAINTEXT://127.0.0.1:9092")
        found.append(Listener(match[1].upper(), match[2] or match[3] or "", int(match[4])))
    for what, keys in (
        ("name", [listener.name for listener in found]),
        ("port", [(listener.host, listener.port) for listener in found if listener.port and name == "listeners"]),
    ):
        if len(set(keys)) != len(keys):
            raise ConfigError(
                f"Each listener must have a different {what}, {name}: {','.join(map(str, found))}", name=name
            )
    return tuple(found)


def parse_security_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...` by name. Raises ConfigError for another form or an unknown protocol."""
    name = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        listener, separator, protocol = item.rpartition(":")
        if not separator or protocol.upper() not in PROTOCOLS:
            raise invalid_value(name, item, f"expected NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}")
        protocols[listener.strip().upper()] = protocol.upper()
    return protocols


def check_served(served: Sequence[Listener], protocols: Mapping[str, str]) -> None:
    """Raises ConfigError for a listener without a protocol, and when there is none for clients."""
    if not served:
        raise ConfigError("listeners names no listener for clients, e.g. PLAINTEXT://127.0.0.1:9092", name="listeners")
    for listener in served:
        if listener.name not in protocols:
            why = f"No security protocol defined for listener {listener.name} in listener.security.protocol.map"
            raise ConfigError(f"listeners: {why}", name="listeners")


def advertised(served: tuple[Listener, ...], named: tuple[Listener, ...]) -> tuple[Listener, ...]:
    """Endpoints of clients: `named` (advertised.listeners), else where the broker listens; a listener on all interfaces
    by this machine's name. Raises ConfigError for a name that is not served or an address nobody can connect to."""
    name, names, shown = "advertised.listeners", {listener.name for listener in served}, named or served
    for listener in shown:
        if listener.name not in names:
            why = f"names {listener.name}, which is not in listeners ({', '.join(sorted(names))})"
            raise ConfigError(f"{name} {why}", name=name)
        if listener.host in ("0.0.0.0", "::"):
            why = f"{name} cannot use the nonroutable meta-address {listener.host}"
            raise ConfigError(why, name=name, hint="use a routable IP address or a host name")
    return tuple(replace(listener, host=listener.host or _own_name()) for listener in shown)


def with_bound_ports(shown: tuple[Listener, ...], bound: Mapping[str, int]) -> tuple[Listener, ...]:
    """Port 0 replaced by the port that the listener of that name was given."""
    return tuple(listener if listener.port else replace(listener, port=bound[listener.name]) for listener in shown)


def _own_name() -> str:
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"  # a name that resolves to nothing would leave even local clients outside
    return name
