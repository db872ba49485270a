"""Wrapper: a compressed message of format v0 or v1, whose value is a message set."""

from __future__ import annotations

import struct
import zlib


def build_wrapper(
    magic: int, attributes: int, value: bytes, last_offset: int, timestamp: int, key: bytes = b"\xff\xff\xff\xff"
) -> bytes:
    """Build the wrapper around a compressed message set.

    Args:
        magic: Message format, 0 or 1.
        attributes: Attributes, including the codec.
        value: Compressed message set.
        last_offset: Offset of the wrapper.
        timestamp: In ms; format v1 only.
        key: Key field: length and bytes; null by default.
    """
    fields = struct.pack(">bbq", magic, attributes, timestamp) if magic else struct.pack(">bb", magic, attributes)
    body = b"".join((fields, key, struct.pack(">i", len(value)), value))
    return struct.pack(">qiI", last_offset, len(body) + 4, zlib.crc32(body)) + body
