"""One batch header read from an open .log file, for whoever is going to append to it."""

from __future__ import annotations

import os

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.format.batch_header import (
    HEADER_SIZES,
    PREFIX_SIZE,
    BatchHeader,
    parse_header,
    parse_prefix,
)


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
