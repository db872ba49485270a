"""Give a finished .log file its place in a log: offsets, leader epoch, indexes. `stamped` does it to batches in memory.

Whoever wrote the file did not know where its records would go. Base offset and leader epoch of a v2 batch lie outside
its CRC, so they are overwritten where they are; nothing else of the file changes.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.format import layout, names
from kafkalog_spark.log.format.durable import open_regular
from kafkalog_spark.log.format.index_file import MAX_INDEX_SIZE
from kafkalog_spark.log.format.offset_index import OffsetIndexWriter
from kafkalog_spark.log.format.time_index import TimeIndexWriter
from kafkalog_spark.log.write.rolling import INDEX_INTERVAL_BYTES
from kafkalog_spark.log.write.segment_writer import SegmentWriter

# the first 16 bytes of a batch: base offset, length (as it was), leader epoch
_PLACE = struct.Struct(">qii")
assert _PLACE.size == layout.LEADER_EPOCH_AT + 4
# what the indexes need of a batch: length, magic, last offset delta, max timestamp
_FACTS = struct.Struct(">8xi4xb6xi8xq")
assert _FACTS.size == layout.MAX_TIMESTAMP_AT + 8


def restamp_segment(
    path: Path,
    base_offset: int,
    leader_epoch: int,
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    max_index_size: int = MAX_INDEX_SIZE,
) -> int:
    """Number the records of the v2 batches in `path` from `base_offset` on, without gaps between batches; returns the
    next offset.

    `path` ends in .log and may have any stem; the indexes get the same one, and are overwritten. To bring all three to
    the disk is the caller's matter. Doing it again gives the same, or other, offsets: a crash in between
    does no harm. The file is mapped: nobody else may cut it meanwhile. Raises CorruptBatch for a file that does not
    consist of whole v2 batches, OSError.
    """
    offset_index = OffsetIndexWriter(path.with_suffix(names.OFFSET_INDEX_SUFFIX), base_offset, max_index_size)
    try:
        time_index = TimeIndexWriter(path.with_suffix(names.TIME_INDEX_SUFFIX), base_offset, max_index_size)
        fd = open_regular(path, os.O_RDWR)
    except BaseException:
        offset_index.close()
        raise
    segment = SegmentWriter(fd, path, base_offset, offset_index, time_index, index_interval_bytes)
    try:
        end = os.fstat(fd).st_size
        with mmap.mmap(fd, end) as log:
            for batch in stamped(log, end, base_offset, leader_epoch):
                segment.count(*batch)
        segment.on_become_inactive()
    except CorruptBatch as error:
        raise error.at(path=str(path)) from None
    finally:
        segment.abandon()
    return segment.next_offset


def stamped(
    log: mmap.mmap | bytearray, end: int, next_offset: int, leader_epoch: int
) -> Iterator[tuple[int, int, int]]:
    """Number the records of the v2 batches in log[:end], in place, from `next_offset` on: (bytes, last offset, largest
    timestamp in ms) of each batch, when its header is done. Raises CorruptBatch for anything but whole batches."""
    position = 0
    while position < end:
        size, last_offset_delta, max_timestamp = _facts_at(log, position, end)
        _PLACE.pack_into(log, position, next_offset, size - layout.LOG_OVERHEAD, leader_epoch)
        last_offset = next_offset + last_offset_delta
        yield size, last_offset, max_timestamp
        position += size
        next_offset = last_offset + 1


def _facts_at(log: mmap.mmap | bytearray, position: int, end: int) -> tuple[int, int, int]:
    """(size, last offset delta, max timestamp) of the whole v2 batch at `position`."""
    if end - position < layout.BATCH_OVERHEAD:
        raise CorruptBatch(f"{end - position} bytes are left, too few for a batch", position=position)
    length, magic, last_offset_delta, max_timestamp = _FACTS.unpack_from(log, position)
    if magic != 2:
        raise CorruptBatch(f"a batch of magic {magic} cannot be renumbered", position=position)
    size = length + layout.LOG_OVERHEAD
    if not layout.BATCH_OVERHEAD <= size <= end - position or last_offset_delta < 0:
        raise CorruptBatch(f"a batch of {size} bytes begins with {end - position} bytes left", position=position)
    return size, last_offset_delta, max_timestamp
