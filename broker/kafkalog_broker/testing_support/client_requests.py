"""Sends requests to a broker over a blocking socket, and receives the responses."""

from __future__ import annotations

import socket
import struct
from typing import Any


def ask(connection: socket.socket, request: Any) -> Any:
    """Send a request of `protocol/api_messages.py` and return the response.

    Raises:
        OSError: If the broker closes the connection, or the connection fails.
    """
    from kafkalog_broker.protocol.client_messages import decode_response

    return decode_response(request.__api_key__, request.__version__, exchange(connection, request))


def exchange(connection: socket.socket, request: Any) -> bytes:
    """Send a request and return the bytes of the response, header included. Raises OSError as `ask`."""
    frame = frame_of(request)
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    return _receive(connection, struct.unpack(">i", _receive(connection, 4))[0])


def frame_of(request: Any) -> bytes:
    """Return the frame of a request: header and body, without the size."""
    from kafkalog_broker.protocol.client_messages import encode_client_request

    return encode_client_request(request, "kafkalog-testing")


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection instead of responding")
        data += more
    return data
