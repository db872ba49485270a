"""gzip: compressed records are a sequence of gzip members; compression writes one.

Bytes after a member that do not begin another one are ignored, as in Java.
"""

from __future__ import annotations

import zlib

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.codecs.output import Output, step_sizes

STREAM_ERRORS = (zlib.error,)

_MAGIC = b"\x1f\x8b\x08"  # with the only compression method, deflate
_WINDOW = 31  # 15 bits, in a gzip member
_FEED = 64 << 10
_MEMBERS = 10_000
"""Every client writes one. Each takes 10 us however small it is, and a megabyte holds 50 thousand empty ones."""


def compress(data: bytes | memoryview, level: int) -> bytes:
    return zlib.compress(data, level, wbits=_WINDOW)


def decompress(source: memoryview, output: Output) -> None:
    steps = step_sizes()
    at = members = 0
    while at < len(source):
        if members and bytes(source[at : at + 3]) != _MAGIC:
            return
        members += 1
        if members > _MEMBERS:
            raise CorruptBatch(f"its gzip stream has more than {_MEMBERS} members")
        output.next_piece()
        member = zlib.decompressobj(wbits=_WINDOW)
        while not member.eof:
            # Pieces are small because zlib copies the unconsumed rest of a piece.
            piece = source[at : at + _FEED]
            at += len(piece)
            data = member.decompress(piece, next(steps))
            if not data and not piece and not member.eof:
                raise CorruptBatch("its gzip stream ends early")
            output.put(data)
            while member.unconsumed_tail and not member.eof:
                output.put(member.decompress(member.unconsumed_tail, next(steps)))
        at -= len(member.unused_data)
