"""Frames to requests and responses to bytes. The one place that knows kio.

A request frame is what follows the 4-byte size: header (API key, version, correlation id, client id, and tagged fields
from header version 2 on) and body. kio's modules are loaded one by one, when the first request of an API and version
arrives: all of them together would cost 0.6 s and 50 MB.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from broker.errors import MalformedRequest, UnsupportedVersion
from broker.protocol.api_registry import ConnectionInfo, Encoded, Request, registry
from broker.protocol.array_lengths import array_check
from broker.protocol.produce_request import parse_produce_request
from broker.protocol.unknown_tags import without_unknown_tags
from broker.protocol.wire import skip_tagged_fields

__all__ = ["API_VERSIONS", "api_name", "decode_request", "encode_response", "request_class", "response_class"]

API_VERSIONS = 18
"""The API key whose response has header version 0 always, and whose unknown versions are answered (KIP-511)."""

_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id
_SIZE_AND_CORRELATION = struct.Struct(">ii")

# kio raises KeyError for an unknown tagged field, ValueError for bad varints and unknown enum values, OverflowError for
# durations and dates that Python cannot hold, and its own SerialError for the rest.
_DAMAGE = (SerialError, ValueError, KeyError, OverflowError, IndexError, struct.error)

Body = bytes | memoryview

# Requests on the hot path are parsed by hand into classes of their own: (frame, position, version) -> value.
_PARSERS: Mapping[int, Callable[[Body, int, int], Any]] = {0: parse_produce_request}

# A small response leaves in one piece: one more buffer for the socket costs more than copying this many bytes.
_JOIN_LIMIT = 8192


class _RequestCodec(NamedTuple):
    has_tagged_header: bool
    parse: Callable[[Body, int], Any]


class _ResponseCodec(NamedTuple):
    entity: type
    write: Callable[[Any, Any], None]
    has_tagged_header: bool


def decode_request(frame: Body, connection: ConnectionInfo | None = None) -> Request:
    """Read one request from a frame without its size prefix (bytes or a read-only memoryview).

    Raises UnsupportedVersion for an API key or version that is not registered, MalformedRequest for anything that is no
    request. Unknown tagged fields are passed over (KIP-482). Bytes behind the body are ignored, as Kafka does.
    """
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
    where = connection or ConnectionInfo()

    api = registry().get(api_key)
    if api is None:
        raise UnsupportedVersion(f"API key {api_key} version {version} is not served")
    if not api.serves(version):
        if api_key == API_VERSIONS:
            return Request(api_key, version, correlation_id, client_id, None, where)
        raise UnsupportedVersion(
            f"{api_name(api_key)} version {version} is not served, only {api.min_version} to {api.max_version}"
        )
    codec = _request_codec(api_key, version)
    if codec.has_tagged_header:
        position = skip_tagged_fields(frame, position)
    try:
        entity = codec.parse(frame, position)
    except MalformedRequest as error:
        error.what = f"{api_name(api_key)} version {version}: {error.what}"
        raise
    except _DAMAGE as error:
        reason = str(error) or type(error).__name__
        raise MalformedRequest(f"{api_name(api_key)} version {version} cannot be read: {reason}") from None
    return Request(api_key, version, correlation_id, client_id, entity, where)


def encode_response(request: Request, response: Any) -> list[Any]:
    """The bytes-like pieces of a response frame: size, response header, body.

    `response` is a kio entity of the request's version or an Encoded body, whose pieces are passed on untouched when
    they are large. Raises TypeError for an entity of another API or version.
    """
    version = 0 if request.entity is None and request.api_key == API_VERSIONS else request.version
    codec = _response_codec(request.api_key, version)
    header = b"\0" if codec.has_tagged_header else b""
    if not isinstance(response, Encoded):
        if type(response) is not codec.entity:
            raise TypeError(
                f"the answer to {api_name(request.api_key)} version {version} must be {codec.entity.__module__}."
                f"{codec.entity.__name__}, not {type(response).__module__}.{type(response).__name__}"
            )
        body = io.BytesIO()
        codec.write(body, response)
        encoded = body.getvalue()
        return [_SIZE_AND_CORRELATION.pack(4 + len(header) + len(encoded), request.correlation_id) + header + encoded]
    size = sum(map(len, response))
    head = _SIZE_AND_CORRELATION.pack(4 + len(header) + size, request.correlation_id) + header
    if size <= _JOIN_LIMIT:
        return [head + b"".join(response)]
    return [head, *response]


def request_class(api_key: int, version: int) -> type:
    """kio's request class."""
    return load_request_schema(api_key, version)


def response_class(api_key: int, version: int) -> type:
    """kio's response class. Its nested classes are in the same module (`import_module(cls.__module__)`)."""
    return load_response_schema(api_key, version)


@cache
def api_name(api_key: int) -> str:
    """ "offset_commit" for 8; the number as text for a key that nobody knows."""
    try:
        return load_request_schema(api_key, registry()[api_key].max_version).__name__.removesuffix("Request")
    except (KioIndexError, KeyError):
        return f"API key {api_key}"


@cache
def _request_codec(api_key: int, version: int) -> _RequestCodec:
    entity = load_request_schema(api_key, version)
    tagged = entity.__header_schema__.__version__ >= 2
    parser = _PARSERS.get(api_key)
    if parser is not None:
        return _RequestCodec(tagged, lambda frame, position: parser(frame, position, version))
    read, check = entity_reader(entity), array_check(entity)

    def parse(frame: Body, position: int) -> Any:
        if check is not None:
            check(frame, position)
        try:
            return read(frame, position)[0]
        except KeyError:
            return read(without_unknown_tags(frame, position, entity), 0)[0]

    return _RequestCodec(tagged, parse)


@cache
def _response_codec(api_key: int, version: int) -> _ResponseCodec:
    entity = load_response_schema(api_key, version)
    return _ResponseCodec(entity, entity_writer(entity), entity.__header_schema__.__version__ >= 1)
