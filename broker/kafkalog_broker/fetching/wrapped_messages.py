"""A compressed message set v0 or v1 in its wrapper, as brokers wrote it."""

from __future__ import annotations

import struct
import zlib

from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.layout import Codec
from kafkalog_spark.log.write.compress import compress

OVERHEAD = layout.LEGACY_MIN_SIZE[1]
"""Bytes that a wrapper has more than its value."""

_HEAD = struct.Struct(">qiI")
_NULL_KEY = -1

# xxHash32 with seed 0, of less than 16 bytes
_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_U32 = 0xFFFFFFFF
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
    checksum = _xxh32(frame[:_LZ4_CHECKSUM_AT]) >> 8 & 0xFF
    return frame[:_LZ4_CHECKSUM_AT] + bytes((checksum,)) + frame[_LZ4_CHECKSUM_AT + 1 :]


def _xxh32(data: bytes) -> int:
    found = _P5 + len(data)
    words = len(data) - len(data) % 4
    for at in range(0, words, 4):
        found = _P4 * _turned(found + _P3 * int.from_bytes(data[at : at + 4], "little"), 17)
    for byte in data[words:]:
        found = _P1 * _turned(found + _P5 * byte, 11)
    found &= _U32
    for shift, factor in ((15, _P2), (13, _P3)):
        found = (found ^ found >> shift) * factor & _U32
    return found ^ found >> 16


def _turned(value: int, bits: int) -> int:
    value &= _U32
    return (value << bits | value >> (32 - bits)) & _U32
