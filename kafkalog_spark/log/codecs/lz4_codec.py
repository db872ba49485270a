"""lz4 codec: one LZ4 frame.

Compression writes it as Java's Lz4BlockOutputStream does: independent blocks of 64 KB, no checksums. In message sets v0
the header checksum covers the wrong bytes (KAFKA-3160); decompression ignores it, since the batch's CRC covers the
header.
"""

from __future__ import annotations

import struct

import lz4.block
import lz4.frame

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.codecs import CODECS
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.codecs.output import Output

STREAM_ERRORS = (lz4.block.LZ4BlockError, struct.error, IndexError)

_FASTEST_HC = 3  # below this level, liblz4 uses the fast algorithm; Java uses HC for every level
_BEST_HC = 12

_MAGIC = b"\x04\x22\x4d\x18"
_BLOCK_MAX = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_HISTORY = 64 << 10  # linked blocks refer back this far
_MAX_RATIO = 255  # no LZ4 block decompresses to more than 255 times its size
_U32LE = struct.Struct("<I")


def compress(data: bytes | memoryview, level: int) -> bytes:
    levels = CODECS[Codec.LZ4].levels
    # Lz4BlockOutputStream: the default level takes the fast compressor, any other one HC, which ends at 12
    is_default = levels is not None and level == levels.default
    hc = 0 if is_default else min(max(level, _FASTEST_HC), _BEST_HC)
    block = lz4.frame.BLOCKSIZE_MAX64KB
    return bytes(lz4.frame.compress(data, compression_level=hc, block_size=block, block_linked=False, store_size=False))


def decompress(source: memoryview, output: Output) -> None:
    if bytes(source[:4]) != _MAGIC:
        raise CorruptBatch("its lz4 frame does not start with the LZ4 magic number")
    flags, block_code = source[4], (source[5] >> 4) & 7
    if flags >> 6 != 1 or block_code not in _BLOCK_MAX:
        raise CorruptBatch(f"its lz4 frame has version {flags >> 6} and block size code {block_code}")
    is_linked = not flags & 0x20
    trailer = 4 if flags & 0x10 else 0  # checksum after each block
    block_max = _BLOCK_MAX[block_code]
    at = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0) + 1
    while True:
        (size_field,) = _U32LE.unpack_from(source, at)
        at += 4
        if size_field == 0:
            return
        size = size_field & 0x7FFFFFFF
        if size > len(source) - at:
            raise CorruptBatch(f"an lz4 block announces {size} bytes, {len(source) - at} are left")
        output.next_piece()
        block = source[at : at + size]
        if size_field & 0x80000000:
            output.put(bytes(block))
        else:
            # The library allocates `uncompressed_size`, however small the block is.
            max_size = min(block_max, size * _MAX_RATIO)
            history = output.scratch.view[max(output.start, output.at - _HISTORY) : output.at] if is_linked else b""
            output.put(lz4.block.decompress(block, uncompressed_size=max_size, dict=history))
        at += size + trailer
