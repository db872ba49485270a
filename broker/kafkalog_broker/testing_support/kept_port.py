"""Port that is reserved for one broker, also between a kill and the next start.

A port that is merely free now could be used before the broker binds it: by another server that binds any port, or by
the local end of a client's connection.
"""

from __future__ import annotations

import os
import socket
import sys
import weakref

HOST = "127.0.0.1"


def kept_port(owner: object) -> int:
    """Return a port of HOST that stays reserved until `owner` is freed.

    The port is bound by a socket that never listens. On Linux a server with SO_REUSEADDR, which this broker and Kafka
    set, can still bind it and listen. On other systems it could not, so the port is not reserved there, only free at
    this moment.
    """
    with socket.socket() as kept:
        if sys.platform == "linux":
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((HOST, 0))
        port: int = kept.getsockname()[1]
        if sys.platform == "linux":
            weakref.finalize(owner, os.close, kept.detach())
    return port
