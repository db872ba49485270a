"""gzip codec: compressed records are a sequence of gzip members. Compression writes one member.

Bytes after a member that do not begin another member are ignored, as in Java.
"""

from __future__ import annotations

import zlib

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.codecs.output import Output, step_sizes

STREAM_ERRORS = (zlib.error,)

_MAGIC = b"\x1f\x8b\x08"  # gzip's magic bytes, then compression method 8 (deflate)
_WINDOW_BITS = 31  # 15 bits, plus 16 for the gzip format
_FEED_BYTES = 64 << 10  # compressed bytes that are passed to zlib at once
_MAX_MEMBERS = 10_000
"""Largest number of members. Every client writes one. Without a limit, a small batch of empty members could take
very long to decompress."""


def compress(data: bytes | memoryview, level: int) -> bytes:
    return zlib.compress(data, level, wbits=_WINDOW_BITS)


def decompress(source: memoryview, output: Output) -> None:
    steps = step_sizes()
    at = members = 0
    while at < len(source):
        if members and bytes(source[at : at + 3]) != _MAGIC:
            return
        members += 1
        if members > _MAX_MEMBERS:
            raise CorruptBatch(f"its gzip stream has more than {_MAX_MEMBERS} members")
        output.next_piece()
        member = zlib.decompressobj(wbits=_WINDOW_BITS)
        while not member.eof:
            # Pieces are small because zlib copies the unconsumed rest of a piece.
            piece = source[at : at + _FEED_BYTES]
            at += len(piece)
            data = member.decompress(piece, next(steps))
            if not data and not piece and not member.eof:
                raise CorruptBatch("its gzip stream ends early")
            output.put(data)
            while member.unconsumed_tail and not member.eof:
                output.put(member.decompress(member.unconsumed_tail, next(steps)))
        at -= len(member.unused_data)
