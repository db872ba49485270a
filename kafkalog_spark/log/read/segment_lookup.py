"""Byte positions of offsets and timestamps in a segment, by its indexes.

An index is only a hint. An entry is used only if a batch begins at its position, has a valid CRC and agrees with the
entry. A missing, truncated, stale or damaged index therefore costs reading time, but never hides a record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import MAX_INT64, NO_TIMESTAMP
from kafkalog_spark.format.offset_index import OffsetPosition
from kafkalog_spark.format.time_index import TimestampOffset
from kafkalog_spark.log.read.batch_search import find_next_batch
from kafkalog_spark.log.read.segment_file import SegmentFile


class PositionHint(NamedTuple):
    """Position of the batch of an offset when a read was planned. It is checked before it is used."""

    segment: int  # base offset of the segment
    position: int


class ScanStart(NamedTuple):
    """Start of a read in a segment: the position of a batch, and the lowest offset that it may have."""

    position: int
    next_offset: int


def locate(file: SegmentFile, offset: int, hint: PositionHint | None = None) -> int:
    """Return the position of a batch such that every record with an offset of at least `offset` is in it or after it.

    The batch is the one in the hint or in an entry of the offset index, if that proves correct; else it is the first
    batch of the file.
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
        # The entry is of a wrapper (v0, v1) that may hold the offset or begin after it. Use the previous entry.
        entry = file.offset_index.floor(entry.offset - 1)
    return file.begin


def proven_entry(file: SegmentFile, entry: OffsetPosition) -> BatchHeader | None:
    """Return the header of the batch that an offset index entry points to; None if the two do not agree.

    The batch must have a valid CRC, and its offsets must be above the previous entry's and not above this entry's. A
    valid CRC alone is not enough: a wrong entry may point into the value of a record, and the value may contain a whole
    batch.

    Brokers before 0.11 wrote the first offset in a wrapper into the entry (Kafka: `LogSegment.append`). The wrapper's
    own offset, which is that of its last record, may then be above the entry's offset, but is below the next entry's.
    """
    header = file.proven_header(entry.position)
    if header is None:
        return None
    offsets = file.offset_index.offsets
    slot = int(np.searchsorted(offsets, entry.offset))
    previous = int(offsets[slot - 1]) if slot else file.base_offset - 1
    highest = entry.offset
    if header.record_count < 0 and header.magic < 2:
        end = MAX_INT64 if file.next_base_offset is None else file.next_base_offset
        highest = (int(offsets[slot + 1]) if slot + 1 < len(offsets) else end) - 1
    return header if previous < header.base_offset <= header.last_offset <= highest else None


def locate_timestamp(file: SegmentFile, timestamp: int) -> ScanStart:
    """Return a start such that every record with a timestamp of at least `timestamp` ms is at or after it.

    It comes from the time index; it is the beginning if the file is only a part of a segment, or the index is wrong.
    """
    entry = file.time_index.floor_before(timestamp) if file.is_whole else None
    return _after_entry(file, entry) or ScanStart(file.begin, file.first_offset)


def largest_timestamp(file: SegmentFile) -> int:
    """Return the largest timestamp (ms) in the segment, NO_TIMESTAMP if it has none.

    Control batches count, as in Kafka. The result is MAX_INT64 for a closed segment that ends inside a batch, because
    the lost batches may have had any timestamp.

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
        next_batch = find_next_batch(file, position, lowest)
        if next_batch is None:
            return largest
        position = next_batch.position


def _after_entry(file: SegmentFile, entry: TimestampOffset | None) -> ScanStart | None:
    """Return the start after the batch of a time index entry; None if the two do not agree.

    An entry (T, O) says that the largest timestamp up to offset O is T. It is used if the batch that contains O has the
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
