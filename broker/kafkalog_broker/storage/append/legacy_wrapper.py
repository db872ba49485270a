"""Wrappers: compressed messages v0 and v1 that hold a message set."""

from __future__ import annotations

import struct
import zlib


def wrapper_of(
    magic: int, attributes: int, value: bytes, last_offset: int, timestamp: int, key: bytes = b"\xff\xff\xff\xff"
) -> bytes:
    """Return the message v0 or v1 around a compressed message set.

    Args:
        magic: Format, 0 or 1.
        attributes: Attributes, with the codec.
        value: The compressed message set.
        last_offset: Offset of the wrapper.
        timestamp: Milliseconds; v1 only.
        key: Key field, length and bytes; null by default.
    """
    fields = struct.pack(">bbq", magic, attributes, timestamp) if magic else struct.pack(">bb", magic, attributes)
    body = b"".join((fields, key, struct.pack(">i", len(value)), value))
    return struct.pack(">qiI", last_offset, len(body) + 4, zlib.crc32(body)) + body
