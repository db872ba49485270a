"""Listeners as server.properties names them: `PLAINTEXT://127.0.0.1:9092,INTERNAL://[::1]:0`."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kafkalog_broker.config.definition import ConfigError

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
            raise ConfigError(
                f"Invalid value {item} for configuration {name}: expected NAME://HOST:PORT, "
                "e.g. PLAINTEXT://127.0.0.1:9092",
                name=name,
            )
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
            raise ConfigError(
                f"Invalid value {item} for configuration {name}: expected NAME:PROTOCOL with one of "
                + ", ".join(PROTOCOLS),
                name=name,
            )
        protocols[listener.strip().upper()] = protocol.upper()
    return protocols


def served_listeners(
    listeners: tuple[Listener, ...], controller_names: Iterable[str], protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    """Those that the broker opens: all but the controller's. Raises ConfigError for one without a protocol, and when
    none is left."""
    controller = {name.upper() for name in controller_names}
    served = tuple(listener for listener in listeners if listener.name not in controller)
    if not served:
        raise ConfigError("listeners names no listener for clients, e.g. PLAINTEXT://127.0.0.1:9092", name="listeners")
    for listener in served:
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise ConfigError(
                f"listeners: No security protocol defined for listener {listener.name} in "
                "listener.security.protocol.map",
                name="listeners",
            )
    return served


def advertised(
    served: tuple[Listener, ...], named: tuple[Listener, ...], controller_names: Iterable[str] = ()
) -> tuple[Listener, ...]:
    """What clients connect to: `named` (advertised.listeners) where given, else where the broker listens; a listener on
    all interfaces by this machine's name. Raises ConfigError for a name that is not served or an address that nobody
    can connect to."""
    controller = {name.upper() for name in controller_names}
    shown = tuple(listener for listener in named if listener.name not in controller) or served
    names = {listener.name for listener in served}
    for listener in shown:
        if listener.name not in names:
            raise ConfigError(
                f"advertised.listeners names {listener.name}, which is not in listeners ({', '.join(sorted(names))})",
                name="advertised.listeners",
            )
        if listener.host in ("0.0.0.0", "::"):
            raise ConfigError(
                f"advertised.listeners cannot use the nonroutable meta-address {listener.host}",
                name="advertised.listeners",
                hint="use a routable IP address or a host name",
            )
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
