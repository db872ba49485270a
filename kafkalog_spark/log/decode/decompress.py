"""Decompress the records of a batch, in every framing that Kafka's clients and brokers have written.

| codec  | framing                                                                                               |
|--------|-------------------------------------------------------------------------------------------------------|
| gzip   | gzip members; bytes after them that begin no other member are ignored, as in Java                     |
| snappy | raw (librdkafka), or xerial (Java): b"\\x82SNAPPY\\0", versions i32 i32, then blocks of i32 length, raw; |
|        | one such stream may follow another                                                                    |
| lz4    | LZ4 frame. Message sets v0 have a header checksum over the wrong bytes (KAFKA-3160): it is not looked at,  |
|        | the batch's own CRC covers these bytes                                                                |
| zstd   | zstd frames                                                                                           |

The formats do not say how large the outcome is, so every codec here writes step by step and stops at a limit: a batch
of a few kilobytes can otherwise decompress to gigabytes.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from itertools import chain, repeat

import lz4.block
import snappy
import zstandard

from kafkalog_spark.errors import CorruptBatch, DecompressesTooFar, UnsupportedFormat
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.decode.scratch import Scratch

_FIRST_STEPS = 64 << 10, 128 << 10, 256 << 10, 512 << 10
_LARGEST_STEP = 1 << 20  # bytes at once: zlib holds up to three times that while it joins them to an object
_SURE_FROM = 1 << 20  # bytes from which on `served` is asked: small batches never pay for it

_GZIP_MAGIC = b"\x1f\x8b\x08"  # and the only compression method, deflate
_GZIP_FEED = 64 << 10
_GZIP_MEMBERS = 10_000
"""Every client writes one. Each takes 10 us however small it is, and a megabyte holds 50 thousand empty ones."""
MAX_PIECES = 64 << 10
"""Blocks or members that the stream of one batch may consist of. Each takes about 1 us of Python however small it is,
and a megabyte holds 200 thousand empty ones. Clients fill blocks of 64 KB (lz4) or 32 KB (snappy; 1 KB at least)."""
_KEPT_CONTEXT = 4 << 20
"""Bytes of output after which zstd's context is dropped: it holds a window as large as a batch asked for."""
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_MAX = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_HISTORY = 64 << 10  # linked blocks refer back this far
_LZ4_MOST = 255  # no LZ4 block decompresses to more than 255 times its size
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_U32LE = struct.Struct("<I")
_I32BE = struct.Struct(">i")

_BROKEN_STREAM = (
    zlib.error, snappy.UncompressError, lz4.block.LZ4BlockError, zstandard.ZstdError,
    struct.error, IndexError, EOFError,
)  # fmt: skip

# One context serves all batches of a thread: making one costs more than a small batch, and two threads that decompress
# with the same one at once get wrong bytes.
_contexts = threading.local()


class Output:
    """Decompressed bytes: in `scratch` from `start` on, at most `limit` bytes. served(start, end): asked now and then
    while a large batch decompresses; it raises when the bytes so far already hold all records that the batch announced.
    pieces: of how many blocks or members its stream may consist."""

    def __init__(
        self,
        scratch: Scratch,
        start: int,
        limit: int,
        served: Callable[[int, int], None] | None = None,
        pieces: int = MAX_PIECES,
    ) -> None:
        self.scratch = scratch
        self.start = start
        self.at = start
        self.limit = limit
        self._served = served
        self._ask_at = _SURE_FROM
        self._pieces = self._pieces_left = pieces

    @property
    def left(self) -> int:
        return self.limit - (self.at - self.start)

    def demand(self, size: int) -> None:
        """Raise DecompressesTooFar unless there is room for `size` more bytes."""
        if size > self.left:
            raise DecompressesTooFar(
                f"its records decompress to more than {self.limit} bytes",
                hint="allow more if such batches are meant to be there",
            )

    def next_piece(self) -> None:
        """Raise DecompressesTooFar when the block or member that begins is one too many."""
        self._pieces_left -= 1
        if self._pieces_left < 0:
            raise DecompressesTooFar(f"its compressed stream consists of more than {self._pieces} pieces")

    def room(self, wish: int) -> memoryview:
        """Writable view of `wish` bytes, or of what is left, after what is there."""
        return self.scratch.room(self.at, min(wish, self.left))

    def wrote(self, size: int) -> None:
        self.at += size
        if self._served is not None and self.at - self.start >= self._ask_at:
            self._ask_at = 2 * (self.at - self.start)
            self._served(self.start, self.at)

    def put(self, data: bytes) -> None:
        """Append bytes that a library returned as an object of their own."""
        self.demand(len(data))
        if data:
            self.room(len(data))[:] = data
            self.wrote(len(data))


def decompress(codec: int, source: memoryview, output: Output) -> int:
    """Decompress `source` into `output`; returns the position after the last byte in its scratch buffer. Raises
    CorruptBatch (broken stream), DecompressesTooFar (limit), UnsupportedFormat (codec ids 5-7)."""
    try:
        of_codec = _CODECS[codec]
    except KeyError:
        raise UnsupportedFormat(f"compression codec {codec} is not known (0 none ... 4 zstd)") from None
    try:
        of_codec(source, output)
    except CorruptBatch:
        raise
    except _BROKEN_STREAM as error:
        raise CorruptBatch(f"cannot be decompressed ({Codec(codec).name.lower()}): {error}") from error
    return output.at


def _gzip(source: memoryview, output: Output) -> None:
    steps = chain(_FIRST_STEPS, repeat(_LARGEST_STEP))
    at = members = 0
    while at < len(source):
        if members and bytes(source[at : at + 3]) != _GZIP_MAGIC:
            return
        members += 1
        if members > _GZIP_MEMBERS:
            raise CorruptBatch(f"its gzip stream has more than {_GZIP_MEMBERS} members")
        output.next_piece()
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            # zlib copies what it has not consumed of a piece, or does not belong to the member: pieces are small
            piece = source[at : at + _GZIP_FEED]
            at += len(piece)
            data = member.decompress(piece, next(steps))
            if not data and not piece and not member.eof:
                raise CorruptBatch("its gzip stream ends early")
            output.put(data)
            while member.unconsumed_tail and not member.eof:
                output.put(member.decompress(member.unconsumed_tail, next(steps)))
        at -= len(member.unused_data)


def _snappy(source: memoryview, output: Output) -> None:
    if bytes(source[:8]) != _XERIAL_MAGIC:
        _snappy_block(source, output)
        return
    at = _XERIAL_HEADER
    while len(source) - at >= _I32BE.size:  # for Java's reader, fewer bytes are the end
        if bytes(source[at : at + 8]) == _XERIAL_MAGIC:
            output.next_piece()
            at += _XERIAL_HEADER
            continue
        (size,) = _I32BE.unpack_from(source, at)
        at += _I32BE.size
        if size < 0 or size > len(source) - at:
            raise CorruptBatch(f"a snappy block announces {size} bytes, {len(source) - at} are left")
        output.next_piece()
        _snappy_block(source[at : at + size], output)
        at += size


def _snappy_block(source: memoryview, output: Output) -> None:
    announced = 0
    for place, byte in enumerate(source[:5]):
        announced |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    output.demand(announced)  # the library would allocate what the block announces
    output.put(bytes(snappy.uncompress(bytes(source))))


def _lz4(source: memoryview, output: Output) -> None:
    if bytes(source[:4]) != _LZ4_MAGIC:
        raise CorruptBatch("its lz4 frame does not start with the LZ4 magic number")
    flags, block_code = source[4], (source[5] >> 4) & 7
    if flags >> 6 != 1 or block_code not in _LZ4_BLOCK_MAX:
        raise CorruptBatch(f"its lz4 frame has version {flags >> 6} and block size code {block_code}")
    linked = not flags & 0x20
    trailer = 4 if flags & 0x10 else 0  # checksum after each block
    block_max = _LZ4_BLOCK_MAX[block_code]
    at = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0) + 1
    while True:
        (word,) = _U32LE.unpack_from(source, at)
        at += 4
        if word == 0:
            return
        size = word & 0x7FFFFFFF
        if size > len(source) - at:
            raise CorruptBatch(f"an lz4 block announces {size} bytes, {len(source) - at} are left")
        output.next_piece()
        block = source[at : at + size]
        if word & 0x80000000:
            output.put(bytes(block))
        else:
            # the library allocates what it is asked to expect, however small the block is
            most = min(block_max, size * _LZ4_MOST)
            history = output.scratch.view[max(output.start, output.at - _LZ4_HISTORY) : output.at] if linked else b""
            output.put(lz4.block.decompress(block, uncompressed_size=most, dict=history))
        at += size + trailer


def _zstd(source: memoryview, output: Output) -> None:
    context: zstandard.ZstdDecompressor = getattr(_contexts, "zstd", None) or zstandard.ZstdDecompressor()
    _contexts.zstd = None
    steps = chain(_FIRST_STEPS, repeat(_LARGEST_STEP))
    with context.stream_reader(source, read_across_frames=True, closefd=False) as reader:
        while output.left:
            size = reader.readinto(output.room(next(steps)))
            if size == 0:
                break
            output.wrote(size)
        else:
            output.demand(len(reader.read(1)))
    if output.at - output.start <= _KEPT_CONTEXT:
        _contexts.zstd = context


_CODECS: dict[int, Callable[[memoryview, Output], None]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
