"""Readers of batch headers in the .log of a segment that is opened for appending."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.batch_header import BatchHeader, read_batch_header
from kafkalog_spark.format.offset_index import OffsetPosition


def header_at(fd: int, position: int, end: int) -> BatchHeader:
    """Return the header of the batch at `position`, without checking its CRC.

    Raises:
        CorruptBatch: If the batch is invalid or extends past `end`.
        UnsupportedFormat: If the magic is unknown.
        OSError: If the file cannot be read.
    """
    return read_batch_header(lambda at, size: os.pread(fd, size, at), position, end, max_unchecked=end)


def headers_from(fd: int, position: int, end: int) -> Iterator[BatchHeader]:
    """Yield the headers of all batches from `position` up to `end`. Raises the same errors as `header_at`."""
    while position < end:
        header = header_at(fd, position, end)
        yield header
        position = header.end


def end_of_closed_segment(fd: int, base_offset: int, last_entry: OffsetPosition, size: int) -> int:
    """Return the next offset of a segment that was closed cleanly, reading only the headers after the last index entry.

    Args:
        fd: Descriptor of the .log.
        base_offset: Base offset of the segment.
        last_entry: Last entry of the offset index.
        size: Size of the .log in bytes.

    Raises:
        CorruptBatch: If the index entry does not match the .log, or the batches after it are invalid.
        UnsupportedFormat: If a batch has an unknown magic.
        OSError: If the file cannot be read.
    """
    next_offset = base_offset
    if last_entry.position > size:
        what = f"the last entry of the offset index has this position, but the .log has {size} bytes"
        raise CorruptBatch(what, position=last_entry.position)
    for header in headers_from(fd, last_entry.position, size):
        if not next_offset <= header.base_offset <= header.last_offset:
            what = (
                f"the batch has offsets {header.base_offset} to {header.last_offset}, expected {next_offset} or higher"
            )
            raise CorruptBatch(what, position=header.position, offset=header.base_offset)
        if header.position == last_entry.position > 0 and header.last_offset != last_entry.offset:
            what = f"the batch ends with offset {header.last_offset}, expected {last_entry.offset} by the offset index"
            raise CorruptBatch(what, position=header.position)
        next_offset = header.last_offset + 1
    return next_offset
