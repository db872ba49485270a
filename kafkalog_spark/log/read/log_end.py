"""The end of a log: where its last segment stops holding good batches.

A log that is still being written to, or that a crash cut short, ends after its last whole batch with a valid CRC. What
follows a torn write is the end; what follows damage is not. Two facts tell them apart: a batch below the recovery point
was flushed, so it cannot be torn, and a batch with a good one behind it was whole once. `find_log_end` decides for
every reader; `log.write.segment_recovery` finds the ends for writers.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.batch_header import BatchHeader, announced_batch
from kafkalog_spark.format.offset_index import OffsetPosition
from kafkalog_spark.log.read.batch_order import ordered_headers
from kafkalog_spark.log.read.batch_search import find_batch, find_batch_behind
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import proven_entry

_ENTRIES_TRIED = 4
"""Index entries, from the last one backward, that are tried as the start of the search; then the first byte is."""
_NEAR = 1 << 20
"""Bytes. The search resumes at a known end without consulting the index if that is at most this far from the end of
the file."""


class LogEnd(NamedTuple):
    """Log end offset (LEO: the offset of the next record) and the byte position behind the last good batch.

    segment, last_batch: base offset of the last segment, and the position of the last batch in it; -1 if unknown.
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

    With `file.pass_over_damage` the log ends behind the last good batch, whatever precedes that.

    Args:
        file: The last segment.
        recovery_point: Offset up to which the log was flushed, read before the log.
        known: An earlier end. The search resumes there if the batch that it ended with is unchanged.

    Raises:
        CorruptBatch, UnsupportedFormat: For a bad batch that is not a torn tail.
    """
    position, next_offset = _search_start(file, known)
    last_batch = -1
    while True:
        error: KafkalogError | None = None
        found: BatchHeader | None = None
        try:
            for header in ordered_headers(file, position, next_offset, every_crc=True):
                last_batch, position, next_offset = header.position, header.end, header.last_offset + 1
            if position < file.size:
                announced_batch(file.read, position, file.size, believed=file.size)
        except (CorruptBatch, UnsupportedFormat) as wrong:
            error = wrong
        if error is not None and file.pass_over_damage:
            found = find_batch_behind(file, position, next_offset)
        elif error is not None:
            check_torn(file, position, next_offset, recovery_point, error)
        if found is None:
            return LogEnd(next_offset, position, file.base_offset, last_batch)
        position, next_offset = found.position, found.base_offset


def last_batch_of(file: SegmentFile, known: LogEnd) -> BatchHeader | None:
    """Return the header of the batch that the log ended with at `known`, None if it has moved, changed or gone."""
    if known.segment != file.base_offset:
        return None
    header = file.proven_header(known.last_batch)
    if header is None or (header.last_offset + 1, header.end) != (known.offset, known.position):
        return None
    return header


def check_torn(
    file: SegmentFile, position: int, next_offset: int, recovery_point: int | None, error: KafkalogError
) -> None:
    """Raise `error` unless an interrupted write explains the bytes from `position` to the end of the log.

    next_offset: the offset behind the last good batch. Adds it, and the reason, to the error.
    """
    error.at(offset=next_offset)
    if file.proven_header(position) is not None:
        raise file.blame(error)  # a valid CRC with offsets that do not follow: not a torn write
    if recovery_point is not None and next_offset < recovery_point:
        error.hint = (
            f"the log was flushed up to offset {recovery_point} (recovery-point-offset-checkpoint), so this is damage"
        )
        raise file.blame(error)
    found = find_batch(file, position + 1, next_offset)
    if found is not None:
        error.hint = f"a good batch with offset {found.base_offset} follows at byte {found.position}, so this is damage"
        raise file.blame(error)


def _search_start(file: SegmentFile, known: LogEnd | None) -> _SearchStart:
    """Return a batch near the end that `known` or an index entry proves, else the first one."""
    last = last_batch_of(file, known) if known is not None else None
    start = _SearchStart(0, file.base_offset) if last is None else _SearchStart(last.position, last.base_offset)
    if last is not None and file.size - last.end <= _NEAR:
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
