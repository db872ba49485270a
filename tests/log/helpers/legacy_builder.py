"""Builds message sets v0 and v1 as old Kafka clients and brokers wrote them, odd ones included. For tests only: Kafka
stopped writing them with 4.0.

    message(1, offset=7, value=b"x", timestamp=1700000000000)                      a plain message
    wrapper(0, GZIP, [LegacyRecord(40, b"k", b"v"), LegacyRecord(41, None, b"")])  a compressed message set

Inner offsets are absolute in v0 and relative in v1 (KIP-31). After compaction the relative ones have gaps, and need not
start at 0: `relative_to` moves them.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import lz4.frame
import snappy

NONE, GZIP, SNAPPY, LZ4 = range(4)
LOG_APPEND_TIME = 0x08
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
XERIAL_BLOCK = 32 * 1024
"""Bytes that Java's SnappyOutputStream compresses at a time."""


@dataclass(frozen=True)
class LegacyRecord:
    """One message to be. `offset` is the one a consumer will see; `timestamp` (ms) counts in v1 only."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = -1


def message(
    magic: int,
    offset: int,
    key: bytes | None = None,
    value: bytes | None = None,
    timestamp: int = -1,
    attributes: int = 0,
) -> bytes:
    """One message with offset and size in front. `attributes`: codec in bits 0-2, LOG_APPEND_TIME."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    body += sized(key) + sized(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def message_set(magic: int, records: Iterable[LegacyRecord], attributes: int = 0) -> bytes:
    """Plain messages, one after the other."""
    return b"".join(message(magic, r.offset, r.key, r.value, r.timestamp, attributes) for r in records)


def wrapper(
    magic: int,
    codec: int,
    records: Sequence[LegacyRecord],
    *,
    key: bytes | None = None,
    log_append_time: int | None = None,
    relative_to: int | None = None,
    wrong_lz4_checksum: bool | None = None,
    xerial: bool = True,
) -> bytes:
    """One message whose value is `records` as a compressed message set. Its offset is that of the last record.

    `log_append_time`: ms, v1 only. The wrapper gets it and the attribute; inner messages keep their own timestamps.
    `relative_to`: the offset that v1's inner offsets count from; the first record's by default.
    `wrong_lz4_checksum`: by default as Kafka did, in v0 only. `xerial=False`: raw snappy, as some clients wrote it.
    """
    start = 0 if magic == 0 else records[0].offset if relative_to is None else relative_to
    inner = [LegacyRecord(r.offset - start, r.key, r.value, r.timestamp) for r in records]
    attributes, timestamp = codec, max(r.timestamp for r in records)
    if log_append_time is not None:
        attributes, timestamp = codec | LOG_APPEND_TIME, log_append_time
    wrong = magic == 0 if wrong_lz4_checksum is None else wrong_lz4_checksum
    value = compressed(codec, message_set(magic, inner), wrong, xerial)
    return message(magic, records[-1].offset, key, value, timestamp, attributes)


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def compressed(codec: int, data: bytes, wrong_lz4_checksum: bool = False, xerial: bool = True) -> bytes:
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        return xerial_framed(data) if xerial else bytes(snappy.compress(data))
    if codec == LZ4:
        frame = bytes(
            lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False)
        )
        return with_wrong_checksum(frame) if wrong_lz4_checksum else frame
    raise ValueError(f"codec {codec} does not exist in v0 and v1")


def xerial_framed(data: bytes, block_size: int = XERIAL_BLOCK) -> bytes:
    blocks = [bytes(snappy.compress(data[at : at + block_size])) for at in range(0, len(data), block_size)]
    return XERIAL_HEADER + b"".join(sized(block) for block in blocks)


def with_wrong_checksum(frame: bytes) -> bytes:
    """The header checksum as Kafka computed it before 0.10: over the magic number too (KAFKA-3160)."""
    return frame[:6] + bytes([xxh32_short(frame[:6]) >> 8 & 0xFF]) + frame[7:]


def xxh32_short(data: bytes) -> int:
    """xxHash32 with seed 0 of less than 16 bytes."""
    mask = 0xFFFFFFFF
    h = (0x165667B1 + len(data)) & mask
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        h = (h + int.from_bytes(data[at : at + 4], "little") * 0xC2B2AE3D) & mask
        h = ((h << 17 | h >> 15) & mask) * 0x27D4EB2F & mask
    for byte in data[whole:]:
        h = (h + byte * 0x165667B1) & mask
        h = ((h << 11 | h >> 21) & mask) * 0x9E3779B1 & mask
    h = (h ^ h >> 15) * 0x85EBCA77 & mask
    h = (h ^ h >> 13) * 0xC2B2AE3D & mask
    return h ^ h >> 16
