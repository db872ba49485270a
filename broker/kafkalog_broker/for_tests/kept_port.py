"""A port that is free for one broker and for nobody else, also between a kill and the next start.

A port that was found free and let go may be taken before it is used: by another server that asks for any, or by a
client's connection, even by one to that very port (a connection to itself).
"""

from __future__ import annotations

import os
import socket
import sys
import weakref

HOST = "127.0.0.1"


def kept_port(owner: object) -> int:
    """A port of HOST that nobody gets who does not ask for it, as long as `owner` lives.

    It is bound here and never listened at. On Linux a server can bind and listen beside that where both set
    SO_REUSEADDR, as brokers do, this one and Java's; and the system gives it to nobody else. Elsewhere it could not:
    the port is only free at this moment there.
    """
    with socket.socket() as kept:
        if sys.platform == "linux":
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((HOST, 0))
        port: int = kept.getsockname()[1]
        if sys.platform == "linux":
            weakref.finalize(owner, os.close, kept.detach())
    return port
