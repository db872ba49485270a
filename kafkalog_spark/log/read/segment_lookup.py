"""Byte positions of offsets and timestamps in a segment, by its indexes.

An index is a hint. An entry counts only if the batch that it points to exists and agrees with it, so a missing, short,
stale or garbled index costs reading time and never hides a record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import MAX_INT64, NO_TIMESTAMP
from kafkalog_spark.format.offset_index import OffsetPosition
from kafkalog_spark.format.time_index import TimestampOffset
from kafkalog_spark.log.read.batch_search import find_batch_behind
from kafkalog_spark.log.read.segment_file import SegmentFile


class PositionHint(NamedTuple):
    """Position at which the batch of an offset was when a read was planned. Checked before it is used."""

    segment: int  # base offset
    position: int


class ScanStart(NamedTuple):
    """Where to begin reading a segment: a batch boundary, and the lowest offset that may follow it."""

    position: int
    next_offset: int


def locate(file: SegmentFile, offset: int, hint: PositionHint | None = None) -> int:
    """Return a position after which every record from `offset` on follows.

    It is that of a batch that the hint or the offset index names and that proves right; the beginning if neither does.
    """
    if hint is not None and hint.segment == file.base_offset:
        hinted = file.proven_header(hint.position)
        if hinted is not None and file.base_offset <= hinted.base_offset <= offset:
            return hinted.position
    if offset <= file.first_offset:
        return file.begin
    entry = file.offset_index.floor(offset)
    while entry.position > file.begin:
        header = proven_entry(file, entry)
        if header is None:
            return file.begin
        if header.base_offset <= offset:
            return entry.position
        # The entry names a wrapper (v0, v1) that may hold the offset or begin after it. The entry before it does not.
        entry = file.offset_index.floor(entry.offset - 1)
    return file.begin


def proven_entry(file: SegmentFile, entry: OffsetPosition) -> BatchHeader | None:
    """Return the header of the batch that an offset index entry points to, None if the two do not agree.

    The batch must have a valid CRC, and its offsets must lie above the previous entry and not above this one. A valid
    CRC alone is not enough: a wrong entry may point into a value, and a value may hold a whole batch. Brokers before
    0.11 wrote the first offset inside a wrapper into the entry (Kafka: `LogSegment.append`). The wrapper's own offset,
    which is that of its last record, may then lie above the entry, but below the one after it.
    """
    header = file.proven_header(entry.position)
    if header is None:
        return None
    offsets = file.offset_index.offsets
    slot = int(np.searchsorted(offsets, entry.offset))
    before = int(offsets[slot - 1]) if slot else file.base_offset - 1
    highest = entry.offset
    if header.record_count < 0 and header.magic < 2:
        end = MAX_INT64 if file.next_base_offset is None else file.next_base_offset
        highest = (int(offsets[slot + 1]) if slot + 1 < len(offsets) else end) - 1
    return header if before < header.base_offset <= header.last_offset <= highest else None


def locate_timestamp(file: SegmentFile, timestamp: int) -> ScanStart:
    """Return a start after which every record with a timestamp of at least `timestamp` ms follows.

    Uses the time index of whole files; the beginning if that does not help.
    """
    entry = file.time_index.floor_before(timestamp) if file.is_whole else None
    return _after_entry(file, entry) or ScanStart(file.begin, file.first_offset)


def largest_timestamp(file: SegmentFile) -> int:
    """Return the largest timestamp (ms) in the segment, NO_TIMESTAMP if it has none.

    Control batches count, as they do for Kafka. A closed segment that ends inside a batch may have lost any timestamp:
    for it the result is MAX_INT64.

    Raises:
        CorruptBatch, UnsupportedFormat: For damage, unless `file.pass_over_damage`.
    """
    last = file.time_index.last if file.is_whole else None
    proven = _after_entry(file, last)
    largest = NO_TIMESTAMP if last is None or proven is None else last.timestamp
    position, lowest = proven or (file.begin, file.first_offset)
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


def _after_entry(file: SegmentFile, entry: TimestampOffset | None) -> ScanStart | None:
    """Return the start after the batch that a time index entry names, None if the two do not agree.

    An entry (T, O) says that the largest timestamp up to offset O is T. It counts if the batch that holds O has the
    max timestamp T and a valid CRC. Then no record before the returned start has a timestamp above T.
    """
    if entry is None or entry.offset < file.base_offset:
        return None
    try:
        for header in file.headers(locate(file, entry.offset)):
            if header.last_offset >= entry.offset:
                if header.max_timestamp != entry.timestamp or (header.magic == 2 and header.base_offset > entry.offset):
                    return None
                if file.proven_header(header.position) is None:
                    return None
                return ScanStart(header.end, header.last_offset + 1)
    except (CorruptBatch, UnsupportedFormat):
        pass
    return None
