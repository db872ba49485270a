"""Encoding of response frames: size, header and body."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.protocol.api_messages import API_VERSIONS, api_name
from kafkalog_broker.protocol.message_codecs import RESPONSE_SIZE_AND_CORRELATION, codec_of
from kafkalog_broker.protocol.request import Request

_JOIN_LIMIT = 8192
"""Responses up to this size are joined into one piece: another buffer for the socket costs more than the copy."""


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
    codec = codec_of(request.api_key, version)
    if type(response) is not codec.response and not isinstance(response, tuple):
        raise TypeError(
            f"the response to {api_name(request.api_key)} version {version} must be a {codec.response.__name__} of "
            f"that version, not {response!r:.200}"
        )
    pieces = codec.write(response, bytearray(codec.response_head_size))
    size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
    RESPONSE_SIZE_AND_CORRELATION.pack_into(pieces[0], 0, size - 4, request.correlation_id)
    return pieces if len(pieces) == 1 or size > _JOIN_LIMIT else [b"".join(pieces)]
