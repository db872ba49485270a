"""Readers of requests and writers of responses, compiled for each API and version.

They are compiled when the first request of an API and version arrives. This takes some milliseconds, so the event loop
calls `load` in a thread if `is_loaded` returns False.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from kafkalog_broker.errors import UnsupportedVersion
from kafkalog_broker.protocol.api_messages import (
    API_VERSIONS,
    api_name,
    reader,
    request_class,
    response_class,
    writer,
)
from kafkalog_broker.protocol.api_registry import registry
from kafkalog_broker.protocol.headers import has_tagged_request_header, has_tagged_response_header
from kafkalog_broker.protocol.produce_messages import parse_one_batch, produce_request
from kafkalog_spark.format.messages.classes import StructValue
from kafkalog_spark.format.messages.reader import Body
from kafkalog_spark.format.messages.writer import Write

MAX_ELEMENTS = 25_000
"""Limit on the elements of all arrays of a request, including tagged fields: 10,000 topics with one partition each have
20,000. Decoding holds the event loop, so the number is bounded. Kafka decodes in threads and has no such limit."""

RESPONSE_SIZE_AND_CORRELATION = struct.Struct(">ii")
"""Start of a response frame: its size, and the correlation ID of the request."""

_VERSIONED = struct.Struct(">hh")  # API key and version, as requests begin with them
_PRODUCE = 0


class Codec(NamedTuple):
    """Reader of the requests and writer of the responses of one API and version.

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


loaded_codecs: dict[tuple[int, int], Codec | None] = {}
"""Codecs by API key and version. None stands for an unserved version of ApiVersions, which gets a response of
version 0."""
_loading = threading.Lock()  # so that requests that arrive together compile a reader and a writer once


def is_loaded(frame: Body) -> bool:
    """Return whether the messages of this API and version are compiled."""
    return len(frame) >= _VERSIONED.size and _VERSIONED.unpack_from(frame) in loaded_codecs


def load(frame: Body) -> None:
    """Compile the messages of this API and version, if they are served. May be called from any thread."""
    with suppress(UnsupportedVersion, struct.error):  # `decode_request` reports these
        load_codec(*_VERSIONED.unpack_from(frame))


def load_codec(api_key: int, version: int) -> Codec | None:
    """Compile the messages of an API and version. Raises UnsupportedVersion if it is not served."""
    api = registry().get(api_key)
    if api is None:
        raise UnsupportedVersion(f"API key {api_key} version {version} is not served")
    if not api.serves(version) and api_key != API_VERSIONS:
        raise UnsupportedVersion(
            f"{api_name(api_key)} version {version} is not served, only {api.min_version} to {api.max_version}"
        )
    with _loading:
        if (api_key, version) not in loaded_codecs:
            loaded_codecs[api_key, version] = codec_of(api_key, version) if api.serves(version) else None
            if not api.serves(version):
                codec_of(api_key, 0)
        return loaded_codecs[api_key, version]


@cache
def codec_of(api_key: int, version: int) -> Codec:
    """Return the codec of a served API and version, compiled at the first call."""
    request, response = request_class(api_key, version), response_class(api_key, version)
    read = reader(request)

    def read_entity(frame: Body, position: int) -> Any:
        return read(frame, position, MAX_ELEMENTS)[0]

    def read_produce(frame: Body, position: int) -> Any:
        return parse_one_batch(frame, position, version) or produce_request(read_entity(frame, position))

    return Codec(
        read_produce if api_key == _PRODUCE else read_entity,
        has_tagged_request_header(api_key, version),
        response,
        writer(response),
        RESPONSE_SIZE_AND_CORRELATION.size + has_tagged_response_header(api_key, version),
    )
