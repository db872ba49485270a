"""snappy codec: a raw block (librdkafka) or xerial framing (Java's SnappyOutputStream); compression writes xerial.

xerial: the 8 bytes `\\x82SNAPPY\\0`, version i32, lowest compatible version i32, then blocks of length i32 and raw
snappy. Compression fills blocks of 32 KB. Several xerial streams may follow one another.
"""

from __future__ import annotations

import struct

import snappy

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.codecs.output import Output

STREAM_ERRORS = (snappy.UncompressError, struct.error, IndexError)

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + struct.pack(">ii", 1, 1)  # version, lowest compatible version
_BLOCK = 32 * 1024
_I32BE = struct.Struct(">i")


def compress(data: bytes | memoryview) -> bytes:
    view = memoryview(data)
    pieces = [_HEADER]
    for at in range(0, len(view), _BLOCK):
        packed = bytes(snappy.compress(view[at : at + _BLOCK]))
        pieces += (len(packed).to_bytes(4, "big"), packed)
    return b"".join(pieces)


def decompress(source: memoryview, output: Output) -> None:
    if bytes(source[:8]) != _MAGIC:
        _decompress_block(source, output)
        return
    at = len(_HEADER)
    while len(source) - at >= _I32BE.size:  # Java's reader takes fewer bytes for the end
        if bytes(source[at : at + 8]) == _MAGIC:
            output.next_piece()
            at += len(_HEADER)
            continue
        (size,) = _I32BE.unpack_from(source, at)
        at += _I32BE.size
        if size < 0 or size > len(source) - at:
            raise CorruptBatch(f"a snappy block announces {size} bytes, {len(source) - at} are left")
        output.next_piece()
        _decompress_block(source[at : at + size], output)
        at += size


def _decompress_block(source: memoryview, output: Output) -> None:
    announced = 0
    for index, byte in enumerate(source[:5]):
        announced |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    output.require_room(announced)  # the library allocates the announced size
    output.put(bytes(snappy.uncompress(bytes(source))))
