"""DescribeConfigs responses, version 1 to 4, written by hand: what resources have in common is encoded once.

v1     throttle_ms i32 | [error i16, message nullable string, type i8, name | [entry]]
       entry: name, value nullable string, read_only bool, source i8, sensitive bool, [name, value, source i8]
v3     type i8, documentation nullable string at the end of an entry
v4     compact strings and arrays, tagged fields
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkalog_broker.protocol.api_registry import Encoded
from kafkalog_broker.protocol.frames import compact_string, legacy_count, legacy_string
from kafkalog_spark.format.varints import uvarint

FIRST_VERSION_WITH_DOCUMENTATION = 3
FIRST_FLEXIBLE_VERSION = 4

_NO_THROTTLE = b"\0\0\0\0"
_FLAGS = struct.Struct(">?b?")
_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")

Synonym = tuple[str, str | None, int]
"""Name, value, source."""


class DescribedConfig(NamedTuple):
    """A property. documentation None: it was not asked for."""

    name: str
    value: str | None
    read_only: bool
    source: int
    is_sensitive: bool
    synonyms: Sequence[Synonym]
    type: int
    documentation: str | None


class DescribedResource(NamedTuple):
    """A resource. configs: encoded by `encode_configs`."""

    error_code: int
    message: str
    type: int
    name: str
    configs: bytes


def encode_configs(version: int, configs: Sequence[DescribedConfig]) -> bytes:
    """The properties of a resource, with their number."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    text: Callable[[str | None], bytes] = compact_string if flexible else legacy_string
    tags = b"\0" if flexible else b""
    out = bytearray(_count(version, len(configs)))
    for config in configs:
        out += text(config.name)
        out += text(config.value)
        out += _FLAGS.pack(config.read_only, config.source, config.is_sensitive)
        out += _count(version, len(config.synonyms))
        for name, value, source in config.synonyms:
            out += text(name)
            out += text(value)
            out += _I8.pack(source)
            out += tags
        if version >= FIRST_VERSION_WITH_DOCUMENTATION:
            out += _I8.pack(config.type)
            out += text(config.documentation)
        out += tags
    return bytes(out)


def encode_describe_configs_response(version: int, resources: Sequence[DescribedResource]) -> Encoded:
    """The response body in pieces."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    text: Callable[[str | None], bytes] = compact_string if flexible else legacy_string
    tags = b"\0" if flexible else b""
    pieces = Encoded()
    out = bytearray(_NO_THROTTLE + _count(version, len(resources)))
    for error_code, message, kind, name, configs in resources:
        out += _I16.pack(error_code) + text(message) + _I8.pack(kind) + text(name)
        if len(configs) < _OWN_PIECE:
            out += configs
        else:
            pieces += (out, configs)
            out = bytearray()
        out += tags
    out += tags
    if out:
        pieces.append(out)
    return pieces


def _count(version: int, number: int) -> bytes:
    return uvarint(number + 1) if version >= FIRST_FLEXIBLE_VERSION else legacy_count(number)


_OWN_PIECE = 1024
"""Bytes from which on the properties of a resource are not copied: thousands of topics have the same."""
