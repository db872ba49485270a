"""Requests over a socket, and their answers, with kio's entities."""

from __future__ import annotations

import socket
import struct
from typing import Any


def ask(connection: socket.socket, request: Any) -> Any:
    """Send one of kio's request entities and read its response entity. Raises OSError, also when the broker closes the
    connection instead of answering."""
    from kafkalog_broker.protocol.client_codec import decode_client_response

    return decode_client_response(request, exchange(connection, request))


def exchange(connection: socket.socket, request: Any) -> bytes:
    """As ask, but gives the answer as bytes, from its header on."""
    frame = frame_of(request)
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    return _receive(connection, struct.unpack(">i", _receive(connection, 4))[0])


def frame_of(request: Any) -> bytes:
    """One of kio's request entities with a header, without the size in front."""
    from kafkalog_broker.protocol.client_codec import encode_client_request

    return encode_client_request(request, "kafkalog-testing")


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection instead of answering")
        data += more
    return data
