"""The end of a log: where its last segment stops holding good batches.

A log that is being written to, or whose broker crashed, may end with an incomplete batch, a torn tail. The log then
ends before that batch. Damage in the middle of a log is not its end. Two facts distinguish damage from a torn tail: a
batch below the recovery point was flushed completely, and a batch that is followed by a good one was complete once.

`find_log_end` is for readers; `log.write.segment_recovery` finds the ends for writers.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.batch_header import BatchHeader, read_batch_header
from kafkalog_spark.format.offset_index import OffsetPosition
from kafkalog_spark.log.read.batch_order import ordered_headers
from kafkalog_spark.log.read.batch_search import find_batch, find_next_batch
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import proven_entry

_ENTRIES_TRIED = 4
"""Number of index entries that are tried as the start of the search, from the last one backward. If all are wrong, the
search starts at the first byte."""
_NEAR_BYTES = 1 << 20
"""If a known end is at most this far from the end of the file, the search resumes there, and does not use the index."""


class LogEnd(NamedTuple):
    """End of a log.

    Attributes:
        offset: Log end offset (LEO): the offset of the next record.
        position: Position of the byte after the last good batch.
        segment: Base offset of the last segment; -1 if unknown.
        last_batch: Position of the last good batch; -1 if unknown.
    """

    offset: int
    position: int
    segment: int = -1
    last_batch: int = -1


class _SearchStart(NamedTuple):
    """Position of a batch, and the lowest offset that it may have."""

    position: int
    lowest_offset: int


def find_log_end(file: SegmentFile, recovery_point: int | None = None, known: LogEnd | None = None) -> LogEnd:
    """Return the end of the log in its last segment.

    With `file.pass_over_damage` the log ends after the last good batch, even if there is damage before it.

    Args:
        file: The last segment.
        recovery_point: Offset up to which the log was flushed, read before the log.
        known: An earlier end. The search resumes there if the batch before it is unchanged.

    Raises:
        CorruptBatch, UnsupportedFormat: For a bad batch that is not a torn tail.
    """
    position, next_offset = _search_start(file, known)
    last_batch = -1
    while True:
        error: KafkalogError | None = None
        next_batch: BatchHeader | None = None
        try:
            for header in ordered_headers(file, position, next_offset, every_crc=True):
                last_batch, position, next_offset = header.position, header.end, header.last_offset + 1
            if position < file.size:
                read_batch_header(file.read, position, file.size, max_unchecked=file.size)
        except (CorruptBatch, UnsupportedFormat) as wrong:
            error = wrong
        if error is not None and file.pass_over_damage:
            next_batch = find_next_batch(file, position, next_offset)
        elif error is not None:
            check_torn(file, position, next_offset, recovery_point, error)
        if next_batch is None:
            return LogEnd(next_offset, position, file.base_offset, last_batch)
        position, next_offset = next_batch.position, next_batch.base_offset


def last_batch_of(file: SegmentFile, known: LogEnd) -> BatchHeader | None:
    """Return the header of the batch before the end `known`; None if it was moved, changed or deleted since."""
    if known.segment != file.base_offset:
        return None
    header = file.proven_header(known.last_batch)
    if header is None or (header.last_offset + 1, header.end) != (known.offset, known.position):
        return None
    return header


def check_torn(
    file: SegmentFile, position: int, next_offset: int, recovery_point: int | None, error: KafkalogError
) -> None:
    """Raise `error` unless the bytes from `position` to the end of the file are a torn tail.

    Args:
        file: The last segment.
        position: Position after the last good batch.
        next_offset: Offset after the last good batch. It is added to the error.
        recovery_point: Offset up to which the log was flushed, if known.
        error: What is wrong at `position`. The reason why it is not a torn tail is added.
    """
    error.at(offset=next_offset)
    if file.proven_header(position) is not None:
        raise file.blame(error)  # a valid CRC, but offsets that do not follow: not a torn write
    if recovery_point is not None and next_offset < recovery_point:
        error.hint = (
            f"the log was flushed up to offset {recovery_point} (recovery-point-offset-checkpoint), so this is damage"
        )
        raise file.blame(error)
    next_batch = find_batch(file, position + 1, next_offset)
    if next_batch is not None:
        base_offset, position = next_batch.base_offset, next_batch.position
        error.hint = f"a good batch with offset {base_offset} follows at byte {position}, so this is damage"
        raise file.blame(error)


def _search_start(file: SegmentFile, known: LogEnd | None) -> _SearchStart:
    """Return the batch before `known`, or that of one of the last index entries; else the first batch of the file."""
    last = last_batch_of(file, known) if known is not None else None
    start = _SearchStart(0, file.base_offset) if last is None else _SearchStart(last.position, last.base_offset)
    if last is not None and file.size - last.end <= _NEAR_BYTES:
        return start
    index = file.offset_index
    for slot in range(len(index) - 1, max(len(index) - 1 - _ENTRIES_TRIED, -1), -1):
        entry = OffsetPosition(int(index.offsets[slot]), int(index.positions[slot]))
        if entry.position <= start.position:
            break
        header = proven_entry(file, entry)
        if header is not None:
            return _SearchStart(header.position, header.base_offset)
    return start
