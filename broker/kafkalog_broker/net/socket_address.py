"""Socket addresses as asyncio's transports return them."""

from __future__ import annotations

from typing import Any


def host_and_port(address: Any) -> tuple[str, int]:
    """Return host and port of a socket address, or ("unknown", 0) if it has none, as that of a Unix socket."""
    if not isinstance(address, tuple) or len(address) < 2:
        return "unknown", 0
    host = str(address[0])
    # On a dual-stack socket an IPv4 peer is ::ffff:10.0.0.1, which Java also shows as 10.0.0.1.
    ipv4 = host.removeprefix("::ffff:")
    return host if ":" in ipv4 else ipv4, int(address[1])
