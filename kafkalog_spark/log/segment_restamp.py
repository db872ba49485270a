"""Give a finished .log file its place in a log: offsets, leader epoch, indexes.

Whoever wrote the file did not know where its records would go. Base offset and leader epoch of a v2 batch lie outside
its CRC, so they are overwritten where they are; nothing else of the file changes.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log import layout, names
from kafkalog_spark.log.index_file import MAX_INDEX_SIZE
from kafkalog_spark.log.offset_index import OffsetIndexWriter
from kafkalog_spark.log.rolling import INDEX_INTERVAL_BYTES
from kafkalog_spark.log.segment_headers import header_at
from kafkalog_spark.log.segment_writer import SegmentWriter
from kafkalog_spark.log.time_index import TimeIndexWriter

# the first 16 bytes of a batch: base offset, length (as it was), leader epoch
_PLACE = struct.Struct(">qii")
assert _PLACE.size == layout.LEADER_EPOCH_AT + 4


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
    does no harm. Raises CorruptBatch for a file that does not consist of whole v2 batches, OSError.
    """
    offset_index = OffsetIndexWriter(path.with_suffix(names.OFFSET_INDEX_SUFFIX), base_offset, max_index_size)
    try:
        time_index = TimeIndexWriter(path.with_suffix(names.TIME_INDEX_SUFFIX), base_offset, max_index_size)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except BaseException:
        offset_index.close()
        raise
    segment = SegmentWriter(fd, path, base_offset, offset_index, time_index, index_interval_bytes)
    try:
        end = os.fstat(fd).st_size
        while segment.size < end:
            position = segment.size
            header = header_at(fd, position, end)
            if header.magic != 2:
                raise CorruptBatch(f"a batch of magic {header.magic} cannot be numbered anew", position=position)
            last_offset = segment.next_offset + header.last_offset - header.base_offset
            place = _PLACE.pack(segment.next_offset, header.size - layout.LOG_OVERHEAD, leader_epoch)
            if os.pwrite(fd, place, position) != _PLACE.size:
                raise OSError(f"only a part of a batch header could be written: {path}")
            segment.count(header.size, last_offset, header.max_timestamp)
        segment.on_become_inactive()
    except CorruptBatch as error:
        raise error.at(path=str(path)) from None
    finally:
        segment.abandon()
    return segment.next_offset
