"""Compress the records of a v2 batch, in the framing that Kafka's brokers and clients accept.

| codec  | framing                                                                          | level (default)       |
|--------|----------------------------------------------------------------------------------|-----------------------|
| gzip   | one gzip member                                                                  | 1-9 or -1 (-1, as 6)  |
| snappy | xerial, as Java's SnappyOutputStream: 16-byte header, blocks of 32 KB            | none                  |
| lz4    | one frame as Java's Lz4BlockOutputStream: independent 64 KB blocks, no checksum  | 1-17 (9: the fast one)|
| zstd   | one frame                                                                        | -131072-22 (3)        |

Levels are those of the topic and producer settings compression.{gzip,lz4,zstd}.level (KIP-390). The zstd frame tells
its content size (Java's does not): readers can then allocate the right buffer at once.
"""

from __future__ import annotations

import struct
import threading
import zlib
from typing import Any

import lz4.frame
import snappy
import zstandard

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec

DEFAULT_LEVELS = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
LEVEL_RANGES = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}
"""Lowest and highest; gzip's default -1 lies outside and is allowed too (GzipCompression.LevelValidator)."""

_LZ4_FASTEST_HC = 3  # below it liblz4's frame compresses with the fast algorithm, where Java's takes HC
_LZ4_BEST_HC = 12
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)  # version, lowest compatible version
_XERIAL_BLOCK = 32 * 1024
_GZIP_WINDOW = 31  # 15 bits, in a gzip member

_contexts = threading.local()  # zstd contexts are not thread safe, and making one costs more than a small batch


def check_decompressed(size: int, offset: int | None = None) -> None:
    """Raise InvalidRecord for records of so many bytes that no reader would take them out of a compressed batch."""
    if size > MAX_DECOMPRESSED:
        raise InvalidRecord(
            f"a compressed batch of {size} bytes of records would be written, and readers refuse to decompress more "
            f"than {MAX_DECOMPRESSED} (maxDecompressedBatchBytes)",
            offset=offset,
            hint="make the record or batch.size smaller, or write with compression.type=none, which has no such limit",
        )


def compression_level(codec: Codec, level: int | None) -> int | None:
    """`level`, or the codec's default for None; None without levels. Raises ValueError for one that Kafka refuses."""
    if codec not in LEVEL_RANGES:
        if level is not None:
            raise ValueError(f"{codec.name.lower()} has no compression levels, got {level}")
        return None
    default = DEFAULT_LEVELS[codec]
    if level is None or level == default:
        return default
    low, high = LEVEL_RANGES[codec]
    if not low <= level <= high:
        raise ValueError(f"{codec.name.lower()} levels go from {low} to {high} (default {default}), got {level}")
    return level


def compress(codec: Codec, data: bytes | memoryview, level: int | None = None) -> bytes:
    """The records of one batch, compressed and framed. Thread-safe. Raises ValueError for a level out of range."""
    level = compression_level(codec, level)
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.SNAPPY:
        view = memoryview(data)
        pieces = [_XERIAL_HEADER]
        for at in range(0, len(view), _XERIAL_BLOCK):
            packed = bytes(snappy.compress(view[at : at + _XERIAL_BLOCK]))
            pieces += (len(packed).to_bytes(4, "big"), packed)
        return b"".join(pieces)
    assert level is not None  # the other codecs have levels
    if codec == Codec.GZIP:
        return zlib.compress(data, level, wbits=_GZIP_WINDOW)
    if codec == Codec.LZ4:
        # Lz4BlockOutputStream: the default level takes the fast compressor, any other one HC, which ends at 12
        hc = 0 if level == DEFAULT_LEVELS[codec] else min(max(level, _LZ4_FASTEST_HC), _LZ4_BEST_HC)
        block = lz4.frame.BLOCKSIZE_MAX64KB
        frame = lz4.frame.compress(data, compression_level=hc, block_size=block, block_linked=False, store_size=False)
        return bytes(frame)
    contexts: dict[Any, zstandard.ZstdCompressor] = _contexts.__dict__  # the thread's own
    if level not in contexts:
        contexts[level] = zstandard.ZstdCompressor(level=level)
    return bytes(contexts[level].compress(data))
