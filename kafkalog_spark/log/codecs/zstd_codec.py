"""zstd codec: a sequence of zstd frames. Compression writes one frame.

Unlike Java's, the written frame contains its content size, so that readers can allocate a buffer of the right size.
"""

from __future__ import annotations

import threading
from typing import Any

import zstandard

from kafkalog_spark.log.codecs.output import Output, step_sizes

STREAM_ERRORS = (zstandard.ZstdError,)

_KEPT_CONTEXT = 4 << 20
"""Decompressed bytes above which the context is dropped, because it keeps a window that is as large as the batch."""

# Each thread keeps its contexts: they are not thread-safe, and creating one costs more than compressing a small batch.
_compressors = threading.local()
_decompressor = threading.local()


def compress(data: bytes | memoryview, level: int) -> bytes:
    contexts: dict[Any, zstandard.ZstdCompressor] = _compressors.__dict__  # the thread's own
    if level not in contexts:
        contexts[level] = zstandard.ZstdCompressor(level=level)
    return bytes(contexts[level].compress(data))


def decompress(source: memoryview, output: Output) -> None:
    context: zstandard.ZstdDecompressor = getattr(_decompressor, "context", None) or zstandard.ZstdDecompressor()
    _decompressor.context = None
    steps = step_sizes()
    with context.stream_reader(source, read_across_frames=True, closefd=False) as reader:
        while output.left:
            size = reader.readinto(output.room(next(steps)))
            if size == 0:
                break
            output.count_written(size)
        else:
            output.require_room(len(reader.read(1)))
    if output.at - output.start <= _KEPT_CONTEXT:
        _decompressor.context = context
