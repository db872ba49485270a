"""Headers of requests and responses: RequestHeader 1 and 2, ResponseHeader 0 and 1.

A request begins with API key, version, correlation id and client id, a response with the correlation id. In flexible
versions tagged fields follow, of which none is known.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.api_messages import API_VERSIONS, request_class, response_class
from kafkalog_spark.format.messages.reader import Body
from kafkalog_spark.format.messages.wire import Malformed, read_unsigned_varint, tag_too_long

MAX_UNKNOWN_TAGS = 100

B = TypeVar("B", bytes, memoryview)


def has_tagged_request_header(api_key: int, version: int) -> bool:
    return bool(request_class(api_key, version)._struct.is_flexible)


def has_tagged_response_header(api_key: int, version: int) -> bool:
    """Clients must be able to read ApiVersions before they know any version (KIP-511)."""
    return api_key != API_VERSIONS and bool(response_class(api_key, version)._struct.is_flexible)


def request_header(api_key: int, version: int, correlation_id: int, client_id: str) -> bytes:
    name = client_id.encode()
    tags = b"\0" if has_tagged_request_header(api_key, version) else b""
    return struct.pack(">hhih", api_key, version, correlation_id, len(name)) + name + tags


def without_header(response: B, api_key: int, version: int) -> B:
    """Return the body of a response.

    Raises:
        MalformedRequest: If the header ends early.
    """
    return response[skip_tagged_fields(response, 4) if has_tagged_response_header(api_key, version) else 4 :]


def skip_tagged_fields(data: Body, position: int) -> int:
    """Return the position after the tagged fields that begin at `position`.

    Raises:
        MalformedRequest: If there are more than MAX_UNKNOWN_TAGS, or if the bytes end early.
    """
    if position < len(data) and data[position] == 0:  # nearly always
        return position + 1
    try:
        count, position = read_unsigned_varint(data, position)
        if count > MAX_UNKNOWN_TAGS:
            raise Malformed(f"{count} tagged fields, of which none is known", position)
        for _ in range(count):
            tag, position = read_unsigned_varint(data, position)
            size, position = read_unsigned_varint(data, position)
            if size > len(data) - position:
                raise tag_too_long(tag, size, data, position)
            position += size
    except Malformed as error:
        raise MalformedRequest(f"{error}, at byte {error.position} of {len(data)}") from None
    return position
