"""Where a log that may still be written, or that a crash cut short, ends: after its last whole batch with a valid CRC.

What follows a torn write is the end; what follows damage is not. The two are told apart by what else is known: a batch
that lies below the recovery point was flushed, so it cannot be torn, and a batch that has a good one after it was
whole once.

`find_log_end` decides it for every reader. Others answer other questions:

- `log.write.segment_recovery.end_of_closed_segment`: where a cleanly closed segment ends, by its last index entry.
- `recover_segment` in the same file: where a log is cut before it is written to, by a broker's LogLoader and the sink;
  damage is cut off there, not reported.
- `TieredLog.log_end`: the local log's, or after the last remote segment where there is none.
- `MergedLog.log_end`: after the last of the pieces that copies were put together of.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.batch_header import BatchHeader, announced_batch
from kafkalog_spark.format.offset_index import OffsetPosition
from kafkalog_spark.log.read.batch_search import find_batch, find_batch_behind, ordered_headers
from kafkalog_spark.log.read.segment_file import SegmentFile

_ENTRIES_TRIED = 4
"""Index entries, from the last one back, that are tried as the place to begin; then the segment's first byte."""
_NEAR = 1 << 20
"""Bytes. An end known from before that lies so near the file's is gone on from without asking the index."""


class LogEnd(NamedTuple):
    """Log end offset (LEO: the next one to be written) and the byte position after the last good batch.

    segment, last_batch: base offset of the last segment, and the position of that batch in it; -1: none seen.
    """

    offset: int
    position: int
    segment: int = -1
    last_batch: int = -1


def find_log_end(
    file: SegmentFile,
    recovery_point: int | None = None,
    known: LogEnd | None = None,
) -> LogEnd:
    """The end of the log in its last segment.

    recovery_point: offset up to which the log was flushed, where a checkpoint tells; read it before the log.
    known: where the log ended once. Looked for from there on if the batch that ended there still does.
    Raises CorruptBatch (UnsupportedFormat) where a batch is bad that is not a torn tail; with file.pass_over_damage the
    log ends after the last good batch, whatever lies before it.
    """
    position, next_offset = _last_known(file, known)
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
            judge_tail(file, position, next_offset, recovery_point, error)
        if found is None:
            return LogEnd(next_offset, position, file.base_offset, last_batch)
        position, next_offset = found.position, found.base_offset


def _last_known(file: SegmentFile, known: LogEnd | None) -> tuple[int, int]:
    """(position, lowest offset) of a batch near the end that the end `known` or an index entry proves; else the
    segment's first."""
    last = still_there(file, known) if known is not None else None
    begin = (0, file.base_offset) if last is None else (last.position, last.base_offset)
    if last is not None and file.size - last.end <= _NEAR:
        return begin
    index = file.offset_index
    for slot in range(len(index) - 1, max(len(index) - 1 - _ENTRIES_TRIED, -1), -1):
        entry = OffsetPosition(int(index.offsets[slot]), int(index.positions[slot]))
        if entry.position <= begin[0]:
            break
        header = file.proven_entry(entry)
        if header is not None:
            return header.position, header.base_offset
    return begin


def still_there(file: SegmentFile, known: LogEnd) -> BatchHeader | None:
    """The header of the batch that the log ended with, if it lies where it lay, with the same end and last offset."""
    if known.segment != file.base_offset:
        return None
    header = file.proven_header(known.last_batch)
    if header is None or (header.last_offset + 1, header.end) != (known.offset, known.position):
        return None
    return header


def judge_tail(
    file: SegmentFile, position: int, next_offset: int, recovery_point: int | None, error: KafkalogError
) -> None:
    """Raise `error` unless what lies at `position` is a torn tail: what an interrupted write leaves of a log's end.

    next_offset: offset after the last good batch.
    """
    error.at(offset=next_offset)
    if file.proven_header(position) is not None:
        raise file.blame(error)  # offsets that do not follow, with a valid CRC: not a torn write
    if recovery_point is not None and next_offset < recovery_point:
        error.hint = (
            f"the log was flushed up to offset {recovery_point} (recovery-point-offset-checkpoint), so this is damage"
        )
        raise file.blame(error)
    found = find_batch(file, position + 1, next_offset)
    if found is not None:
        error.hint = f"a good batch with offset {found.base_offset} follows at byte {found.position}, so this is damage"
        raise file.blame(error)
