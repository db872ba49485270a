"""Decoding of request frames, and encoding of response frames.

A request frame is the header and body that follow the 4-byte size. Messages are compiled when the first request of an
API and version arrives. This takes some milliseconds, so the event loop calls `load` in a thread if `is_loaded` returns
False.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from kafkalog_broker.errors import MalformedRequest, UnsupportedVersion
from kafkalog_broker.protocol.api_messages import (
    API_VERSIONS,
    api_name,
    reader,
    request_class,
    response_class,
    writer,
)
from kafkalog_broker.protocol.api_registry import registry
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.headers import (
    has_tagged_request_header,
    has_tagged_response_header,
    skip_tagged_fields,
)
from kafkalog_broker.protocol.produce_messages import parse_one_batch, produce_request
from kafkalog_broker.protocol.request import Request
from kafkalog_spark.format.messages.classes import StructValue
from kafkalog_spark.format.messages.reader import Body
from kafkalog_spark.format.messages.wire import Malformed
from kafkalog_spark.format.messages.writer import Write

MAX_ELEMENTS = 25_000
"""Limit on the elements of all arrays of a request, including tagged fields: 10,000 topics with one partition each have
20,000. Decoding holds the event loop, so the number is bounded. Kafka decodes in threads and has no such limit."""

_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_VERSIONED = struct.Struct(">hh")  # API key and version, as requests begin with them

_PRODUCE = 0
_JOIN_LIMIT = 8192
"""Responses up to this size are joined into one piece: another buffer for the socket costs more than the copy."""


class _Codec(NamedTuple):
    """Reader and writer of one API and version.

    Attributes:
        read_body: Returns the entity, given a frame and the position of its body.
        response: Class of the response.
        has_tagged_request_header: True if the header of a request ends with tagged fields.
        response_head_size: Number of bytes of the size and the header of a response.
    """

    read_body: Callable[[Body, int], Any]
    has_tagged_request_header: bool
    response: type[StructValue]
    write: Write
    response_head_size: int


_loaded: dict[tuple[int, int], _Codec | None] = {}
"""Loaded messages by API key and version. None stands for an unserved version of ApiVersions, which gets a response of
version 0."""
_loading = threading.Lock()  # so that requests that arrive together compile a reader and a writer once


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


def encode_response(request: Request, response: Any) -> list[Any]:
    """Encode a response frame: size, header and body.

    Args:
        request: The request.
        response: Result of its handler (see `api_registry`).

    Returns:
        Pieces of the frame, bytes-like or FileSlice. Large records are not copied.

    Raises:
        TypeError: If the response is of another API or version.
    """
    version = 0 if request.entity is None and request.api_key == API_VERSIONS else request.version
    codec = _compile(request.api_key, version)
    if type(response) is not codec.response and not isinstance(response, tuple):
        raise TypeError(
            f"the response to {api_name(request.api_key)} version {version} must be a {codec.response.__name__} of "
            f"that version, not {response!r:.200}"
        )
    pieces = codec.write(response, bytearray(codec.response_head_size))
    size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
    _SIZE_AND_CORRELATION.pack_into(pieces[0], 0, size - 4, request.correlation_id)
    return pieces if len(pieces) == 1 or size > _JOIN_LIMIT else [b"".join(pieces)]


def is_loaded(frame: Body) -> bool:
    """Return whether the messages of this API and version are compiled."""
    return len(frame) >= _VERSIONED.size and _VERSIONED.unpack_from(frame) in _loaded


def load(frame: Body) -> None:
    """Compile the messages of this API and version, if they are served. May be called from any thread."""
    with suppress(UnsupportedVersion, struct.error):  # `decode_request` reports these
        _load(*_VERSIONED.unpack_from(frame))


def with_throttle_time(response: Any, throttle_ms: int) -> Any:
    """Return the response with this throttle time (below 2**31 ms), unchanged if its version has no such field."""
    return response._replace(throttle_time=throttle_ms) if "throttle_time" in response._fields else response


def _decode_header(frame: Body, connection: ConnectionInfo | None) -> tuple[Request, _Codec | None, int]:
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
    codec = _loaded.get((api_key, version)) or _load(api_key, version)
    if codec is None:
        return request, None, position
    if codec.has_tagged_request_header:
        position = skip_tagged_fields(frame, position)
    return request, codec, position


def _load(api_key: int, version: int) -> _Codec | None:
    """Compile the messages of an API and version. Raises UnsupportedVersion if it is not served."""
    api = registry().get(api_key)
    if api is None:
        raise UnsupportedVersion(f"API key {api_key} version {version} is not served")
    if not api.serves(version) and api_key != API_VERSIONS:
        raise UnsupportedVersion(
            f"{api_name(api_key)} version {version} is not served, only {api.min_version} to {api.max_version}"
        )
    with _loading:
        if (api_key, version) not in _loaded:
            _loaded[api_key, version] = _compile(api_key, version) if api.serves(version) else None
            if not api.serves(version):
                _compile(api_key, 0)
        return _loaded[api_key, version]


@cache
def _compile(api_key: int, version: int) -> _Codec:
    request, response = request_class(api_key, version), response_class(api_key, version)
    read = reader(request)

    def read_entity(frame: Body, position: int) -> Any:
        return read(frame, position, MAX_ELEMENTS)[0]

    def read_produce(frame: Body, position: int) -> Any:
        return parse_one_batch(frame, position, version) or produce_request(read_entity(frame, position))

    return _Codec(
        read_produce if api_key == _PRODUCE else read_entity,
        has_tagged_request_header(api_key, version),
        response,
        writer(response),
        _SIZE_AND_CORRELATION.size + has_tagged_response_header(api_key, version),
    )
