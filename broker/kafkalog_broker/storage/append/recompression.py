"""The records of a batch, unpacked within bounds, and the batch rebuilt with another codec or other offset deltas."""

from __future__ import annotations

import struct
import threading
import traceback
import zlib

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.append.record_walk import renumbered
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec
from kafkalog_spark.log.decode.decompress import MAX_PIECES, Output, decompress
from kafkalog_spark.log.decode.scratch import Scratch
from kafkalog_spark.log.write.compress import compress
from kafkalog_spark.log.write.encoded_batch import seal

PRODUCER = "producer"  # the value of compression.type that keeps a producer's codec
_LEVELS = {
    Codec.GZIP: "compression_gzip_level",
    Codec.LZ4: "compression_lz4_level",
    Codec.ZSTD: "compression_zstd_level",
}

_KEPT_SCRATCH = 4 << 20
"""Bytes of the unpacking buffer that a thread keeps; most batches decompress to less. A larger one belongs to its
caller alone, and is given back to the system when the caller lets go of the records."""

_threads = threading.local()


def target_codec(compression_type: str, source: int) -> int:
    if compression_type == PRODUCER:
        return source
    return Codec.NONE if compression_type == "uncompressed" else Codec[compression_type.upper()]


def unpacked(codec: int, records: memoryview, limit: int = MAX_DECOMPRESSED, pieces: int = MAX_PIECES) -> memoryview:
    """The uncompressed records, good until the same thread calls again. Raises CorruptBatch for a broken stream,
    DecompressesTooFar for more than `limit` bytes or `pieces` (see decompress)."""
    scratch: Scratch | None = getattr(_threads, "scratch", None)
    if scratch is None:
        scratch = Scratch(64 << 10, most=MAX_DECOMPRESSED)
    _threads.scratch = None  # until it is known how far it has grown
    try:
        end = decompress(codec, records, Output(scratch, 0, limit, pieces=pieces))
    except CorruptBatch as error:
        del scratch
        release_frames(error)
        raise
    if scratch.data.size <= _KEPT_SCRATCH:
        _threads.scratch = scratch
    return scratch.view[:end]


def release_frames(error: BaseException | None) -> None:
    """Drop the local variables of all frames in the tracebacks of `error` and its causes.

    A frame of a decompression holds its buffer of up to MAX_DECOMPRESSED bytes. An error that is part of a reference
    cycle, such as that of an asyncio task, would keep the buffer until the garbage collector runs.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def packed(records: memoryview | bytes, codec: int, config: LogConfig) -> bytes:
    level = getattr(config, _LEVELS[Codec(codec)], None) if codec in _LEVELS else None
    return compress(Codec(codec), records, level)


def rebuilt(
    batch: bytearray,
    records: memoryview,
    codec: int,
    attributes: int,
    max_timestamp: int,
    config: LogConfig,
    in_sequence: bool,
) -> bytearray:
    """A batch with the same records, producer id, epoch, sequence and transactional bit. in_sequence: offset deltas are
    0, 1, 2 ... already. Timestamps of records and the base timestamp stay."""
    (
        base_offset, _, leader_epoch, magic, _, _, _, base_timestamp, _, producer_id, producer_epoch, base_sequence,
        count,
    ) = layout.BATCH_HEADER.unpack_from(batch)  # fmt: skip
    plain = records if in_sequence else renumbered(records, count, base_timestamp)
    attributes = attributes & ~layout.ATTRIBUTE_CODEC | codec
    made = bytearray(layout.BATCH_OVERHEAD) + packed(plain, codec, config)
    fields = (
        base_offset, 0, leader_epoch, magic, 0, attributes, count - 1, base_timestamp, max_timestamp, producer_id,
        producer_epoch, base_sequence, count,
    )  # fmt: skip
    seal(made, 0, len(made), fields)
    return made


def wrapper_of(
    magic: int, attributes: int, value: bytes, last_offset: int, timestamp: int, key: bytes = b"\xff\xff\xff\xff"
) -> bytes:
    """The message v0 or v1 around a compressed message set. timestamp: ms, v1 only; key: length and bytes."""
    fields = struct.pack(">bbq", magic, attributes, timestamp) if magic else struct.pack(">bb", magic, attributes)
    body = b"".join((fields, key, struct.pack(">i", len(value)), value))
    return struct.pack(">qiI", last_offset, len(body) + 4, zlib.crc32(body)) + body


# The checksum in the header of an lz4 frame, which the codec's library does not show, and Kafka looks at.
#
#     4 magic number | descriptor: 1 flags, 1 block size, 8 content size when the flags say so | 1 checksum
#
# The checksum is the second byte of the descriptor's xxHash32. In message sets v0 it is taken over the magic number
# too, and nobody looks at it (KAFKA-3160).

_DESCRIPTOR_AT = 4
_HAS_CONTENT_SIZE = 0x08
_CONTENT_SIZE_BYTES = 8
_SHORTEST = 2

# of xxHash32
_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1


def check_lz4_header(frame: bytes | memoryview) -> None:
    """Raise CorruptBatch for a checksum that is not the descriptor's. A frame that ends before it passes."""
    if len(frame) <= _DESCRIPTOR_AT:
        return
    size = _SHORTEST + (_CONTENT_SIZE_BYTES if frame[_DESCRIPTOR_AT] & _HAS_CONTENT_SIZE else 0)
    checksum_at = _DESCRIPTOR_AT + size
    if len(frame) <= checksum_at:
        return
    expected = checksum(bytes(frame[_DESCRIPTOR_AT:checksum_at]))
    if frame[checksum_at] != expected:
        raise CorruptBatch(
            f"its lz4 frame has the header checksum {frame[checksum_at]:#04x}, its header has {expected:#04x}"
        )


def checksum(data: bytes) -> int:
    """The byte that comes after this descriptor, of less than 16 bytes: of its xxHash32 with seed 0."""

    def rotated(value: int, bits: int) -> int:
        value &= 0xFFFFFFFF
        return value << bits | value >> (32 - bits)

    found = _P5 + len(data)
    words = len(data) - len(data) % 4
    for at in range(0, words, 4):
        found = _P4 * rotated(found + _P3 * int.from_bytes(data[at : at + 4], "little"), 17)
    for byte in data[words:]:
        found = _P1 * rotated(found + _P5 * byte, 11)
    found &= 0xFFFFFFFF
    for shift, factor in ((15, _P2), (13, _P3)):
        found = (found ^ found >> shift) * factor & 0xFFFFFFFF
    return (found ^ found >> 16) >> 8 & 0xFF
