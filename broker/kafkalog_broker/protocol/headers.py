"""Headers of requests (versions 1 and 2) and responses (versions 0 and 1).

A request begins with API key, version, correlation ID and client ID, a response with the correlation ID. In flexible
versions tagged fields follow. Kafka defines none, so all are skipped.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.api_messages import API_VERSIONS, request_class, response_class
from kafkalog_spark.format.messages.reader import Body
from kafkalog_spark.format.messages.wire import Malformed, read_unsigned_varint, tag_too_long

MAX_UNKNOWN_TAGS = 100  # tagged fields of one header

Frame = TypeVar("Frame", bytes, memoryview)


def has_tagged_request_header(api_key: int, version: int) -> bool:
    """Return True if the request header ends with tagged fields."""
    return bool(request_class(api_key, version)._struct.is_flexible)


def has_tagged_response_header(api_key: int, version: int) -> bool:
    """Return True if the response header ends with tagged fields.

    That of ApiVersions never does, so that clients can read it before they know any version (KIP-511).
    """
    return api_key != API_VERSIONS and bool(response_class(api_key, version)._struct.is_flexible)


def request_header(api_key: int, version: int, correlation_id: int, client_id: str) -> bytes:
    """Return the header of a request."""
    name = client_id.encode()
    tags = b"\0" if has_tagged_request_header(api_key, version) else b""
    return struct.pack(">hhih", api_key, version, correlation_id, len(name)) + name + tags


def without_header(response: Frame, api_key: int, version: int) -> Frame:
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
    if position < len(data) and data[position] == 0:  # no tagged fields, as nearly always
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
