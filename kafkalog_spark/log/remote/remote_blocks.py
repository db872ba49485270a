"""Blocks of the .log of remote segments, cached and fetched ahead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kafkalog_spark.log.remote.block_decoding import read_block
from kafkalog_spark.log.remote.chunk_cache import ChunkCache
from kafkalog_spark.log.remote.remote_objects import RemoteObjects
from kafkalog_spark.log.remote.remote_segment_file import DECODED_BLOCK
from kafkalog_spark.log.tiered.chunk_codec import ChunkCodec
from kafkalog_spark.log.tiered.chunks import ChunkIndex
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment

_LARGE_CHUNK_SIZE = 16 << 20
"""Chunk size in bytes above which a block is a part of a chunk. Each block is then decoded from the start of the chunk,
which takes more time and less memory than decoding the whole chunk."""


class RemoteBlocks:
    """Reads .log files of remote segments in blocks. Thread-safe."""

    def __init__(self, objects: RemoteObjects) -> None:
        self._objects = objects
        self._prefetch_bytes = objects.options.prefetch_bytes
        self._chunks = ChunkCache(objects.options.chunk_cache_bytes)

    def close(self) -> None:
        """Stop read-ahead, without waiting for running requests."""
        self._chunks.close()

    def forget(self, segment: RemoteSegment) -> None:
        """Drop the blocks of a segment that was deleted."""
        self._chunks.forget(lambda key: isinstance(key, tuple) and key[0] == segment.segment_id)

    def read(self, segment: RemoteSegment, chunks: ChunkIndex, codec: ChunkCodec, begin: int, end: int) -> bytes:
        """Return the bytes [begin, end) of a .log. If the reads are sequential, fetch the next blocks ahead."""
        if begin >= end:
            return b""
        size, block = chunks.original_file_size, _block_size(chunks.original_chunk_size, codec)
        decodes_parts = block < chunks.original_chunk_size
        first, last = begin // block, (end - 1) // block

        def piece(number: int) -> tuple[tuple[object, int], int, Callable[[], bytes]]:
            start, until = number * block, min((number + 1) * block, size)
            read = partial(read_block, self._objects, segment, start, until, decodes_parts=decodes_parts)
            return (segment.segment_id, number), until - start, read

        ahead = 1
        if first == 0 or (segment.segment_id, first - 1) in self._chunks:
            ahead = 1 + self._prefetch_bytes // block
        for number in range(first + 1, min(last + ahead, (size - 1) // block + 1)):
            self._chunks.fetch_ahead(*piece(number))
        parts = []
        for number in range(first, last + 1):
            start = number * block
            data = self._chunks.get(*piece(number))
            is_whole = begin <= start and len(data) <= end - start
            parts.append(data if is_whole else data[max(begin - start, 0) : end - start])
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _block_size(chunk_size: int, codec: ChunkCodec) -> int:
    """Return the size of the blocks that are decoded and cached: whole chunks, or a part of a large chunk."""
    if chunk_size > _LARGE_CHUNK_SIZE and codec.can_decode_parts:
        return DECODED_BLOCK
    return chunk_size * max(DECODED_BLOCK // chunk_size, 1)
