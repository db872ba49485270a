"""Record batches with a valid CRC that cost more than they look: for Produce, in attacks and in tests.

A record here has 7 bytes where it holds nothing: length 6, attributes, timestamp delta, offset delta, key, value and
headers. All the same, so they compress a thousand times and more.
"""

from __future__ import annotations

import gzip
import struct
from functools import cache

import crc32c
import lz4.frame
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME = 0x08
MILLION = 1_000_000
EMPTY_RECORD = bytes([12, 0, 0, 0, 1, 1, 0])
"""Timestamp delta 0, offset delta 0 whatever its place, key and value null, no headers."""


def batch(records: bytes, count: int, attributes: int, *, timestamp: int = 1_700_000_000_000) -> bytes:
    """A batch v2 with base offset 0: `records` as they lie in it, compressed already, and what its header says."""
    head = struct.pack(
        ">hiqqqhii", attributes, count - 1, timestamp, timestamp, -1, -1, -1, count
    )  # attributes, last offset delta, base and max timestamp, producer id and epoch, sequence, count
    body = head + records
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c.crc32c(body)) + body


def zigzag(number: int) -> bytes:
    """A varint of a record."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


@cache
def wrong_deltas(count: int = MILLION) -> bytes:
    """`count` records that all say offset delta 0, zstd: 671 bytes for a million. Brokers number them anew."""
    return batch(zstandard.ZstdCompressor(level=19).compress(EMPTY_RECORD * count), count, ZSTD)


@cache
def log_append_time(count: int = MILLION) -> bytes:
    """As `wrong_deltas`, and its header says LogAppendTime, which a producer may not."""
    return batch(zstandard.ZstdCompressor(level=19).compress(EMPTY_RECORD * count), count, ZSTD | LOG_APPEND_TIME)


@cache
def wrong_deltas_uncompressed(count: int = 140_000) -> bytes:
    """1 MB of records that all say offset delta 0."""
    return batch(EMPTY_RECORD * count, count, NONE)


def one_record(value: bytes) -> bytes:
    """The bytes of one record without key and headers."""
    body = b"\0\0\0\1" + zigzag(len(value)) + value + b"\0"
    return zigzag(len(body)) + body


@cache
def zeros(size: int) -> bytes:
    """One record whose value is `size` zeros, gzip: a thousandth of that, and honest in all it says."""
    return batch(gzip.compress(one_record(bytes(size)), 9, mtime=0), 1, GZIP)


@cache
def plain(value: bytes = b"x") -> bytes:
    """One honest record, not compressed."""
    return batch(one_record(value), 1, NONE)


@cache
def lz4_linked_one_byte_blocks(size: int) -> bytes:
    """One record in an lz4 frame of linked blocks of one byte each: 5 bytes of batch for one of value."""
    data = one_record(bytes(size))
    header = lz4.frame.compress(b"", block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True, store_size=False)[:7]
    blocks = b"".join(struct.pack("<I", 1 << 31 | 1) + data[at : at + 1] for at in range(len(data)))
    return batch(header + blocks + bytes(4), 1, LZ4)
