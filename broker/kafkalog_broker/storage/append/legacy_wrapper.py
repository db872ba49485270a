"""Wrappers: compressed messages v0 and v1 that hold a message set."""

from __future__ import annotations

import struct
import zlib


def wrapper_of(
    magic: int, attributes: int, value: bytes, last_offset: int, timestamp: int, key: bytes = b"\xff\xff\xff\xff"
) -> bytes:
    """The message v0 or v1 around a compressed message set. timestamp: ms, v1 only; key: length and bytes."""
    fields = struct.pack(">bbq", magic, attributes, timestamp) if magic else struct.pack(">bb", magic, attributes)
    body = b"".join((fields, key, struct.pack(">i", len(value)), value))
    return struct.pack(">qiI", last_offset, len(body) + 4, zlib.crc32(body)) + body
