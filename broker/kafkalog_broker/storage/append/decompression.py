"""Decompression of the records of one batch, with limits on its memory and work."""

from __future__ import annotations

import threading
import traceback

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.layout import MAX_DECOMPRESSED
from kafkalog_spark.log.codecs.decompress import decompress
from kafkalog_spark.log.codecs.output import MAX_PIECES, Output
from kafkalog_spark.log.codecs.scratch import Scratch

_MAX_KEPT_BYTES = 4 << 20
"""Largest decompression buffer that a thread keeps; most batches decompress to less. A larger buffer belongs to its
caller alone, and is freed with the last reference to the records."""
_per_thread = threading.local()  # `scratch`: the buffer that the thread keeps


def decompress_records(
    codec: int, records: memoryview, max_bytes: int = MAX_DECOMPRESSED, max_pieces: int = MAX_PIECES
) -> memoryview:
    """Return the decompressed records. The view is valid until the same thread calls this function again.

    Args:
        max_bytes: Largest number of decompressed bytes.
        max_pieces: Largest number of blocks or members of the compressed stream.

    Raises:
        CorruptBatch: If the compressed stream is malformed.
        DecompressesTooFar: If it exceeds `max_bytes` or `max_pieces`.
    """
    scratch: Scratch | None = getattr(_per_thread, "scratch", None)
    if scratch is None:
        scratch = Scratch(64 << 10, expected_size=MAX_DECOMPRESSED)
    _per_thread.scratch = None  # kept again below, unless it has grown too large
    try:
        end = decompress(codec, records, Output(scratch, 0, max_bytes, pieces=max_pieces))
    except CorruptBatch as error:
        del scratch  # this frame is still running, so `clear_frames` cannot drop it
        release_frames(error)
        raise
    if scratch.data.size <= _MAX_KEPT_BYTES:
        _per_thread.scratch = scratch
    return scratch.view[:end]


def release_frames(error: BaseException | None) -> None:
    """Drop the local variables of all frames in the tracebacks of `error` and its causes.

    A frame of a decompression holds its buffer of up to MAX_DECOMPRESSED bytes. An error that is part of a reference
    cycle, such as that of an asyncio task, would keep the buffer until the garbage collector runs.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
