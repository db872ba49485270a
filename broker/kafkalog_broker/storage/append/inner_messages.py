"""The messages in a wrapper: what a compressed message set of format v0 or v1 holds (Kafka's DeepRecordsIterator).

Only offsets and timestamps, for ListOffsets. In plain Python: Kafka has written no such set since 4.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.layout import NO_TIMESTAMP

_OVERHEAD = struct.Struct(">qi4xb")  # offset, size, magic
_TIMESTAMP = struct.Struct(">q")


def inner_messages(payload: memoryview, magic: int, wrapper_offset: int) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each message of an uncompressed set; a message of format v0 has timestamp -1.

    v0: offsets are those of the log. v1: they count from the first one, and the last one has the wrapper's (KIP-31).
    A set that ends inside a message ends before it, as in Kafka. Raises CorruptBatch.
    """
    found: list[tuple[int, int]] = []
    at, end = 0, len(payload)
    while end - at >= layout.LOG_OVERHEAD:
        offset, size, inner_magic = _OVERHEAD.unpack_from(payload, at) if end - at >= _OVERHEAD.size else (0, 0, 0)
        whole = size + layout.LOG_OVERHEAD
        if inner_magic not in (0, 1) or whole < layout.LEGACY_MIN_SIZE[inner_magic]:
            raise CorruptBatch(f"a message of {size} bytes and magic {inner_magic} in a wrapper")
        if whole > end - at:
            break
        timestamp = NO_TIMESTAMP
        if inner_magic:
            (timestamp,) = _TIMESTAMP.unpack_from(payload, at + layout.LEGACY_TIMESTAMP_AT)
        found.append((offset, timestamp))
        at += whole
    if not found:
        raise CorruptBatch("a wrapper without a message")
    base = 0
    if magic and wrapper_offset:  # some librdkafka releases left the wrapper's offset at 0
        base = wrapper_offset - found[-1][0]
        if base < 0:
            raise CorruptBatch(f"offset {wrapper_offset} of a wrapper is below that of its last message")
    for offset, timestamp in found:
        yield base + offset, timestamp
