"""A compressed message set v0 or v1 in its wrapper, as brokers wrote it."""

from __future__ import annotations

import struct
import zlib

from kafkalog_broker.storage.append.lz4_header import checksum
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.layout import Codec
from kafkalog_spark.log.write.compress import compress

OVERHEAD = layout.LEGACY_MIN_SIZE[1]
"""Bytes that a wrapper has more than its value."""

_HEAD = struct.Struct(">qiI")
_NULL_KEY = -1

_LZ4_CHECKSUM_AT = 6  # in a frame that tells neither its size nor a dictionary: `compress` makes no other


def wrapped(
    magic: int, codec: int, messages: memoryview, last_offset: int, timestamp: int, *, append_time: bool
) -> bytes:
    """The wrapper of `messages`, whose offsets are relative in v1. timestamp: ms, of v1 only; append_time: it is that
    of LogAppendTime. lz4 frames of v0 have the header checksum that Kafka wrote before 0.10 (KAFKA-3160), which clients
    of that time ask for."""
    value = compress(Codec(codec), messages)
    if codec == Codec.LZ4 and magic == 0:
        value = _with_old_checksum(value)
    if magic == 1:
        attributes = codec | (layout.ATTRIBUTE_LOG_APPEND_TIME if append_time else 0)
        body = struct.pack(">bbqii", magic, attributes, timestamp, _NULL_KEY, len(value))
    else:
        body = struct.pack(">bbii", magic, codec, _NULL_KEY, len(value))
    crc = zlib.crc32(value, zlib.crc32(body))
    return _HEAD.pack(last_offset, 4 + len(body) + len(value), crc) + body + value


def _with_old_checksum(frame: bytes) -> bytes:
    """The checksum of an lz4 frame's header, over the magic number too."""
    made = checksum(frame[:_LZ4_CHECKSUM_AT])
    return frame[:_LZ4_CHECKSUM_AT] + bytes((made,)) + frame[_LZ4_CHECKSUM_AT + 1 :]
