"""Batch headers read from an open .log file that is going to be appended to."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.batch_header import BatchHeader, announced_batch
from kafkalog_spark.format.offset_index import OffsetPosition


def header_at(fd: int, position: int, end: int) -> BatchHeader:
    """The header of the whole batch at `position`. Raises CorruptBatch when the batch goes past `end`."""
    return announced_batch(lambda at, size: os.pread(fd, size, at), position, end, believed=end)


def headers_from(fd: int, position: int, end: int) -> Iterator[BatchHeader]:
    """The headers of the whole batches from `position` up to `end`, CRCs not looked at. Raises as header_at."""
    while position < end:
        header = header_at(fd, position, end)
        yield header
        position = header.end


def end_of_closed_segment(fd: int, base_offset: int, last_entry: OffsetPosition, size: int) -> int:
    """The offset after the last batch of a segment of `size` bytes that was closed cleanly, from the headers after
    `last_entry` of its offset index. Raises CorruptBatch, UnsupportedFormat where the index does not lead there."""
    next_offset = base_offset
    if last_entry.position > size:
        what = f"the last index entry points past the end, byte {size}"
        raise CorruptBatch(what, position=last_entry.position)
    for header in headers_from(fd, last_entry.position, size):
        if not next_offset <= header.base_offset <= header.last_offset:
            raise CorruptBatch("offsets do not rise", position=header.position, offset=header.base_offset)
        if header.position == last_entry.position > 0 and header.last_offset != last_entry.offset:
            raise CorruptBatch("the last index entry is of another batch", position=header.position)
        next_offset = header.last_offset + 1
    return next_offset
