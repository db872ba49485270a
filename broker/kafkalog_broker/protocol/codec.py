"""Frames to requests and responses to bytes, by kio's classes, and those of guide_schemas for what it lacks.

A request frame is what follows the 4-byte size: header (API key, version, correlation id, client id, and tagged fields
from header version 2 on) and body. kio's modules are loaded one by one, when the first request of an API and version
arrives: all of them together would cost 0.6 s and 50 MB. Who has an event loop calls `load` in a thread first where
`is_loaded` says no: one takes up to 0.1 s.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from kafkalog_broker.errors import MalformedRequest, UnsupportedVersion
from kafkalog_broker.protocol.api_registry import ConnectionInfo, Request, registry
from kafkalog_broker.protocol.entity_codec import Body, Write, entity_reader, entity_writer, skip_tagged_fields
from kafkalog_broker.protocol.guide_schemas import guide_classes
from kafkalog_broker.protocol.hot_messages import parse_one_batch, produce_request

API_VERSIONS = 18
"""The API key whose response has header version 0 always, and whose unknown versions are answered (KIP-511)."""

MAX_ELEMENTS = 25_000
"""Elements of all arrays of a request, tagged fields included: 10,000 topics of one partition each are 20,000. As many
are read in 10 to 40 ms, in which nobody else is served. Kafka, whose requests have threads, has no such bound."""

_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id
_SIZE_AND_CORRELATION = struct.Struct(">ii")

_PRODUCE = 0
# A small response leaves in one piece: one more buffer for the socket costs more than copying this many bytes.
_JOIN_LIMIT = 8192


class _Codec(NamedTuple):
    """Reads requests of an API and version, and writes their responses."""

    parse: Callable[[Body, int], Any]
    has_tagged_request: bool  # its header has tagged fields
    response: type
    write: Write
    has_tagged_response: bool


def decode_request(frame: Body, connection: ConnectionInfo | None = None) -> Request:
    """Read one request from a frame without its size prefix (bytes or a read-only memoryview). Raises
    UnsupportedVersion for an API key or version that is not registered, MalformedRequest for anything that is no
    request. Unknown tagged fields (KIP-482) and bytes after the body are passed over, as in Kafka."""
    request, codec, position = _head(frame, connection)
    if codec is not None:
        try:
            request.entity = codec.parse(frame, position)
        except MalformedRequest as error:
            error.what = f"{api_name(request.api_key)} version {request.version}: {error.what}"
            raise
    return request


def decode_one_batch(frame: Body, connection: ConnectionInfo | None = None) -> Request | None:
    """As `decode_request`, of a Produce request with one batch; None for all others."""
    request, codec, position = _head(frame, connection)
    request.entity = None if codec is None else parse_one_batch(frame, position, request.version)
    return None if request.entity is None else request


def _head(frame: Body, connection: ConnectionInfo | None) -> tuple[Request, _Codec | None, int]:
    """A request without its entity, its codec (None: there is no entity), and where its body begins."""
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
    codec = _served.get((api_key, version)) or _codec_to_serve(api_key, version)
    if codec is None:
        return request, None, position
    if codec.has_tagged_request:
        position = skip_tagged_fields(frame, position)
    return request, codec, position


_served: dict[tuple[int, int], _Codec | None] = {}
"""What was asked for since the start, by API key and version; None: ApiVersions is answered in version 0."""
_loading = threading.Lock()  # classes made twice, by two threads, are two classes: an answer would be of the other one


def _codec_to_serve(api_key: int, version: int) -> _Codec | None:
    api = registry().get(api_key)
    if api is None:
        raise UnsupportedVersion(f"API key {api_key} version {version} is not served")
    if not api.serves(version) and api_key != API_VERSIONS:
        raise UnsupportedVersion(
            f"{api_name(api_key)} version {version} is not served, only {api.min_version} to {api.max_version}"
        )
    with _loading:
        codec = _served[api_key, version] = _codec(api_key, version) if api.serves(version) else None
        if codec is None:
            _codec(api_key, 0)
    return codec


def encode_response(request: Request, response: Any) -> list[Any]:
    """The bytes-like pieces of a response frame: size, response header, body; large records are passed on untouched.
    response: what a handler returns (`api_registry`). Raises TypeError for an entity of another API or version."""
    version = 0 if request.entity is None and request.api_key == API_VERSIONS else request.version
    codec = _codec(request.api_key, version)
    if type(response) is not codec.response and not isinstance(response, tuple):
        raise TypeError(
            f"the answer to {api_name(request.api_key)} version {version} must be "
            f"{codec.response.__module__}.{codec.response.__name__}, not "
            f"{type(response).__module__}.{type(response).__name__}"
        )
    pieces = codec.write(response, bytearray(_SIZE_AND_CORRELATION.size + codec.has_tagged_response))
    size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
    _SIZE_AND_CORRELATION.pack_into(pieces[0], 0, size - 4, request.correlation_id)
    return pieces if len(pieces) == 1 or size > _JOIN_LIMIT else [b"".join(pieces)]


def request_class(api_key: int, version: int) -> type:
    """kio's request class, or one of guide_schemas."""
    of_guides = guide_classes(api_key, version, EntityType.request)
    return load_request_schema(api_key, version) if of_guides is None else of_guides.message


@cache
def response_class(api_key: int, version: int) -> type:
    """kio's response class, or one of guide_schemas. `response_entity.response_module` has its nested classes."""
    of_guides = guide_classes(api_key, version, EntityType.response)
    return load_response_schema(api_key, version) if of_guides is None else of_guides.message


@cache
def api_name(api_key: int) -> str:
    """ "OffsetCommit" for 8; "API key 4711" for a key that nobody knows. Loads nothing."""
    try:
        path: str = next(iter(schema_name_map[api_key_map[api_key]].values()))[EntityType.request]
    except KeyError:
        return f"API key {api_key}"
    return path.rpartition(":")[2].removesuffix("Request")


_VERSIONED = struct.Struct(">hh")  # API key and version, as requests begin with them


def is_loaded(frame: Body) -> bool:
    """True if requests of this API and version are read and answered without loading a module."""
    return len(frame) >= _VERSIONED.size and _VERSIONED.unpack_from(frame) in _served


def load(frame: Body) -> None:
    """Load what requests of this API and version need, if they are served. May run in a thread."""
    with suppress(UnsupportedVersion, struct.error):  # `decode_request` says so
        _codec_to_serve(*_VERSIONED.unpack_from(frame))


@cache
def _codec(api_key: int, version: int) -> _Codec:
    request: Any = request_class(api_key, version)
    response: Any = response_class(api_key, version)
    read = parse = entity_reader(request, MAX_ELEMENTS)
    if api_key == _PRODUCE:

        def parse(frame: Body, at: int) -> Any:
            return parse_one_batch(frame, at, version) or produce_request(read(frame, at))

    return _Codec(
        parse, request.__header_schema__.__version__ >= 2, response, entity_writer(response),
        response.__header_schema__.__version__ >= 1,
    )  # fmt: skip


def with_throttle_time(response: Any, throttle_ms: int) -> Any:
    """The same response with throttle_time_ms, below 2**31; as it is where its version has no such field."""
    if isinstance(response, tuple):
        return response._replace(throttle_time=throttle_ms)  # type: ignore[attr-defined]
    if not hasattr(response, "throttle_time"):
        return response
    return replace(response, throttle_time=throttle_ms)
