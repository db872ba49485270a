"""Batch headers read from an open .log file, for whoever is going to append to it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.format.batch_header import (
    HEADER_SIZES,
    PREFIX_SIZE,
    BatchHeader,
    check_crc,
    parse_header,
    parse_prefix,
)
from kafkalog_spark.log.format.index_file import MAX_RELATIVE_OFFSET


def header_at(fd: int, position: int, end: int) -> BatchHeader:
    """The header of the whole batch at `position`. Raises CorruptBatch when the batch goes past `end`."""
    left = end - position
    data = os.pread(fd, max(HEADER_SIZES), position)
    if left < PREFIX_SIZE:
        raise CorruptBatch(f"{left} bytes are left, too few for a batch", position=position)
    size, magic = parse_prefix(data, 0, position)
    if size > left or len(data) < HEADER_SIZES[magic]:
        raise CorruptBatch(f"a batch of {size} bytes begins with {left} bytes left", position=position)
    return parse_header(data, 0, position)


def checked_headers(fd: int, base_offset: int, end: int) -> Iterator[BatchHeader]:
    """Headers of the batches before `end`, with a right CRC and rising offsets that an index can hold.

    Raises CorruptBatch or UnsupportedFormat at the first other one.
    """
    position, next_offset = 0, base_offset
    while position < end:
        header = header_at(fd, position, end)
        check_crc(header, os.pread(fd, header.size, position))
        if not next_offset <= header.base_offset <= header.last_offset <= base_offset + MAX_RELATIVE_OFFSET:
            raise CorruptBatch(f"offsets do not rise, {next_offset} is the next", position=position)
        yield header
        position, next_offset = header.end, header.last_offset + 1
