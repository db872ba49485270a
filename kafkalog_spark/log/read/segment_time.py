"""Timestamps of a segment, as its time index has them as far as the log confirms it.

An entry (T, O) says that the largest timestamp up to offset O is T. It is believed when the batch that holds O has the
max timestamp T; whatever follows O is looked up in the headers of batches whose CRC is valid. So a missing, short,
stale or garbled time index costs reading, and hides nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format.layout import MAX_INT64, NO_TIMESTAMP
from kafkalog_spark.log.read.batch_search import find_batch_behind
from kafkalog_spark.log.read.segment_file import SegmentFile


class Proven(NamedTuple):
    """Every record up to `offset` has a timestamp of at most `timestamp` ms; the next batch begins at `position`."""

    timestamp: int
    offset: int
    position: int


def largest_timestamp(file: SegmentFile) -> int:
    """The largest timestamp (ms) in the segment, NO_TIMESTAMP when it has none; control batches count, as for Kafka.

    MAX_INT64 for a closed segment that ends inside a batch: nobody knows. Damage is passed over where
    file.pass_over_damage; else raises CorruptBatch, UnsupportedFormat.
    """
    last = file.time_index.last if file.is_whole else None
    proven = _prove(file, last.timestamp, last.offset) if last is not None else None
    first = Proven(NO_TIMESTAMP, file.first_offset - 1, file.begin) if proven is None else proven
    largest, position, lowest = first.timestamp, first.position, first.offset + 1
    while True:
        try:
            for header in file.good_headers(position):
                largest = max(largest, header.max_timestamp)
                position, lowest = header.end, header.last_offset + 1
        except (CorruptBatch, UnsupportedFormat) as error:
            if not file.pass_over_damage:
                raise file.blame(error) from None
        else:
            if position == file.size or (file.is_last and not file.pass_over_damage):
                return largest
            if not file.pass_over_damage:
                return MAX_INT64
        found = find_batch_behind(file, position, lowest)
        if found is None:
            return largest
        position = found.position


def position_for_timestamp(file: SegmentFile, timestamp: int) -> tuple[int, int]:
    """(position, offset) from which reading on finds every record of the segment with a timestamp >= `timestamp` ms.

    (0, base offset) where the time index cannot help, which is one of whole files.
    """
    entry = file.time_index.floor_before(timestamp) if file.is_whole else None
    proven = _prove(file, entry.timestamp, entry.offset) if entry is not None else None
    if proven is None:
        return file.begin, file.first_offset
    return proven.position, proven.offset + 1


def _prove(file: SegmentFile, timestamp: int, offset: int) -> Proven | None:
    """Hold an entry of the time index against the batch that holds its offset; None when they do not agree."""
    if offset < file.base_offset:
        return None
    try:
        for header in file.headers(file.locate(offset)):
            if header.last_offset >= offset:
                if header.max_timestamp != timestamp or (header.magic == 2 and header.base_offset > offset):
                    return None
                if file.proven_header(header.position) is None:
                    return None
                return Proven(timestamp, header.last_offset, header.end)
    except (CorruptBatch, UnsupportedFormat):
        return None
    return None
