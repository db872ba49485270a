"""Where a batch is validated: at once, in the event loop, or in a thread, because it would hold everybody up.

A hand-over to a thread and back takes 0.1 ms, and several ms when both threads want the interpreter; unfolding a batch
of the usual size takes less. So a thread gets what takes longer than 1 to 3 ms (measured on one core: gzip unfolds 0.65
GB/s, zstd 1.4, snappy and lz4 4 to 12).
"""

from __future__ import annotations

from broker.storage.recompression import target_codec
from kafkalog_spark.log import layout
from kafkalog_spark.log.decompress import MAX_DECOMPRESSED
from kafkalog_spark.log.layout import Codec

AT_ONCE: dict[int, int] = {
    Codec.NONE: MAX_DECOMPRESSED,
    Codec.GZIP: 1 << 20,
    Codec.SNAPPY: 4 << 20,
    Codec.LZ4: 4 << 20,
    Codec.ZSTD: 4 << 20,
}
"""Unfolded bytes of one batch that the event loop has the time for."""

PACKED_AT_ONCE = 16 << 10
"""Bytes of a batch that gets another codec, which is ten times the work: gzip packs 75 MB/s."""

USUAL_RATIO = 4
"""To how many times its size a batch unfolds, as long as it is not known."""


def bytes_at_once(batch: memoryview, compression_type: str) -> int:
    """How far the batch may unfold in the event loop, in bytes; 0 when a thread should have it from the beginning.

    A batch that is no batch is for validation to tell.
    """
    if len(batch) <= layout.RECORDS_AT:
        return MAX_DECOMPRESSED
    codec = batch[layout.ATTRIBUTES_AT + 1] & layout.ATTRIBUTE_CODEC
    if target_codec(compression_type, codec) != codec and len(batch) > PACKED_AT_ONCE:
        return 0
    limit = AT_ONCE.get(codec, MAX_DECOMPRESSED)  # a codec that there is not: refused
    return limit if not codec or len(batch) * USUAL_RATIO <= limit else 0
