"""Decoding of request frames. A request frame is the header and body that follow the 4-byte size."""

from __future__ import annotations

import struct

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.headers import skip_tagged_fields
from kafkalog_broker.protocol.message_codecs import Codec, load_codec, loaded_codecs
from kafkalog_broker.protocol.produce_messages import parse_one_batch
from kafkalog_broker.protocol.request import Request
from kafkalog_spark.format.messages.reader import Body
from kafkalog_spark.format.messages.wire import Malformed

_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id


def decode_request(frame: Body, connection: ConnectionInfo | None = None) -> Request:
    """Decode a request. As in Kafka, unknown tagged fields (KIP-482) and bytes after the body are ignored.

    Args:
        frame: The frame without its size: bytes or a read-only memoryview.
        connection: Connection on which the request arrived.

    Raises:
        UnsupportedVersion: For an API key or version that is not registered.
        MalformedRequest: If the bytes are not a request.
    """
    request, codec, position = _decode_header(frame, connection)
    if codec is not None:
        try:
            request.entity = codec.read_body(frame, position)
        except Malformed as error:
            raise MalformedRequest(
                f"{api_name(request.api_key)} version {request.version}: {error}, at byte {error.position} of "
                f"{len(frame)}"
            ) from None
    return request


def decode_one_batch(frame: Body, connection: ConnectionInfo | None = None) -> Request | None:
    """Decode a Produce request with one batch, faster than `decode_request`. Return None for any other request."""
    request, codec, position = _decode_header(frame, connection)
    request.entity = None if codec is None else parse_one_batch(frame, position, request.version)
    return None if request.entity is None else request


def _decode_header(frame: Body, connection: ConnectionInfo | None) -> tuple[Request, Codec | None, int]:
    """Return the request without its entity, its reader (None if it has no entity), and the position of its body."""
    try:
        api_key, version, correlation_id, length = _HEADER.unpack_from(frame)
    except struct.error:
        raise MalformedRequest(f"a frame of {len(frame)} bytes has no room for a request header") from None
    position = _HEADER.size
    client_id = None
    if length >= 0:
        end = position + length
        if end > len(frame):
            raise MalformedRequest(f"the client id has {length} bytes, {len(frame) - position} are left in the frame")
        client_id = str(frame[position:end], "utf-8", "replace")
        position = end
    elif length != -1:
        raise MalformedRequest(f"the client id has the length {length}")

    request = Request(api_key, version, correlation_id, client_id, None, connection or ConnectionInfo(), len(frame))
    codec = loaded_codecs.get((api_key, version)) or load_codec(api_key, version)
    if codec is None:
        return request, None, position
    if codec.has_tagged_request_header:
        position = skip_tagged_fields(frame, position)
    return request, codec, position
