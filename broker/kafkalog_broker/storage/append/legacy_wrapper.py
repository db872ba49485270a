"""Wrapper: a compressed message of format v0 or v1, whose value is a message set."""

from __future__ import annotations

import struct
import zlib

from kafkalog_broker.storage.append.lz4_frame import header_checksum
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.codecs.compress import compress

_LZ4_CHECKSUM_AT = 6
"""Position of the header checksum in a frame without content size and dictionary ID, as `compress` makes it."""


def compress_message_set(codec: Codec, magic: int, message_set: bytes | memoryview) -> bytes:
    """Return a compressed message set, the value of a wrapper.

    In format v0, the header checksum of an LZ4 frame also covers the magic number of the frame, as clients of that
    format expect (KAFKA-3160, `Lz4BlockOutputStream`).
    """
    value = compress(codec, message_set)
    if codec != Codec.LZ4 or magic:
        return value
    checksum = header_checksum(value[:_LZ4_CHECKSUM_AT])
    return value[:_LZ4_CHECKSUM_AT] + bytes((checksum,)) + value[_LZ4_CHECKSUM_AT + 1 :]


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
