"""Builds v2 record batches field by field, honest ones and ones that lie. For tests only; the package has its encoder.

batch(7, [V2Record(7, 1700000000000, b"k", b"v")], codec=LZ4)     an honest batch
batch(7, records, count=2**31 - 1)                                 a header that lies; the CRC is right
sealed(changed)                                                    any bytes, with length and CRC put right
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import crc32c
import lz4.frame
import snappy
import zstandard

from tests.log.helpers.legacy_builder import xerial_framed

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
ABORT, COMMIT, LEADER_CHANGE = range(3)
HEADER_SIZE = 61


@dataclass(frozen=True)
class V2Record:
    """`timestamp` in ms; headers as (name, value or None)."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def varint(number: int) -> bytes:
    """Zigzag, as Kafka writes lengths and deltas."""
    number = (number << 1) ^ (number >> 63)
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: bytes) -> bytes:
    """One record. `headers`: count and headers, encoded."""
    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value) + headers
    return varint(len(body)) + body


def encoded_headers(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    return varint(len(headers)) + b"".join(sized(name) + sized(value) for name, value in headers)


def encoded(records: Sequence[V2Record], base_offset: int, base_timestamp: int) -> bytes:
    return b"".join(
        record(r.timestamp - base_timestamp, r.offset - base_offset, r.key, r.value, encoded_headers(r.headers))
        for r in records
    )


def batch(
    base_offset: int,
    records: Sequence[V2Record],
    *,
    codec: int = NONE,
    variant: int = 0,
    last_offset: int | None = None,
    count: int | None = None,
    max_timestamp: int | None = None,
    log_append_time: int | None = None,
    attributes: int = 0,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    payload: bytes | None = None,
) -> bytes:
    """A whole batch. last_offset, count, max_timestamp: by default what `records` say. `payload`: in place of
    `records`, not compressed. `variant`: which of a codec's framings (see `compressed`)."""
    base_timestamp = records[0].timestamp if records else 0
    if max_timestamp is None:
        max_timestamp = max((r.timestamp for r in records), default=-1)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time
    if last_offset is None:
        last_offset = records[-1].offset if records else base_offset
    body = encoded(records, base_offset, base_timestamp) if payload is None else payload
    head = struct.pack(
        ">qiibIhiqqqhii",
        base_offset, 0, leader_epoch, 2, 0, attributes | codec, last_offset - base_offset, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, len(records) if count is None else count,
    )  # fmt: skip
    return sealed(head + (compressed(codec, body, variant) if body else b""))


def sealed(data: bytes) -> bytes:
    """The v2 batch with the length and CRC that its bytes ask for: only what was changed on purpose is wrong."""
    body = data[21:]
    return data[:8] + struct.pack(">i", len(data) - 12) + data[12:17] + struct.pack(">I", crc32c.crc32c(body)) + body


def compressed(codec: int, data: bytes, variant: int = 0) -> bytes:
    """Framings that clients of Kafka write: snappy xerial or raw, lz4 blocks independent or linked with or without
    content size and checksums, zstd with or without content size, gzip in one member or two."""
    if codec == NONE:
        return data
    if codec == GZIP:
        middle = len(data) // 2 if variant % 2 else len(data)
        parts = (data[:middle], data[middle:]) if variant % 2 else (data,)
        return b"".join(gzip.compress(part, mtime=0) for part in parts)
    if codec == SNAPPY:
        if variant % 2:
            return bytes(snappy.compress(data))
        return xerial_framed(data, block_size=512 if variant & 2 else 32 << 10)
    if codec == LZ4:
        return bytes(
            lz4.frame.compress(
                data,
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                block_linked=bool(variant & 1),
                store_size=bool(variant & 2),
                content_checksum=bool(variant & 4),
                block_checksum=bool(variant & 8),
            )
        )
    assert codec == ZSTD
    return zstandard.ZstdCompressor(write_content_size=variant % 2 == 0, write_checksum=variant % 4 > 1).compress(data)


def control(offset: int, kind: int, timestamp: int, producer_id: int = -1, producer_epoch: int = 0) -> bytes:
    """A control batch: the end of a transaction, or (LEADER_CHANGE) one that belongs to none."""
    attributes = CONTROL | (TRANSACTIONAL if kind in (ABORT, COMMIT) else 0)
    marker = V2Record(offset, timestamp, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 5))
    return batch(offset, [marker], attributes=attributes, producer_id=producer_id, producer_epoch=producer_epoch)
