"""Addresses of a source's nodes, and lists of them in a command line."""

from __future__ import annotations

from kafkalog_spark.errors import OptionError

Address = tuple[str, int]
"""Host and port."""

_DEFAULT_PORT = 9092


def parse_bootstrap(text: str) -> list[Address]:
    """Parse `host:port,host:port`, also `[::1]:9092`. Raises OptionError."""
    addresses: list[Address] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = part.rpartition(":")
        if not separator or (":" in host and not host.startswith("[")) or port.endswith("]"):
            host = part
            port = str(_DEFAULT_PORT)
        if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
            raise OptionError(f"--bootstrap {part!r}: expected HOST:PORT")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise OptionError("--bootstrap is empty: expected HOST:PORT, several with commas between them")
    return addresses
