"""Search a segment by its batch headers: for the next good batch after damage, wrong offsets, timestamps, its end.

A log that may still be written, or that a crash cut short, ends after its last whole batch with a valid CRC. What
follows a torn write is the end; what follows damage is not. Two facts tell them apart: a batch below the recovery point
was flushed, so it cannot be torn, and a batch that has a good one after it was whole once. `find_log_end` decides for
every reader; `log.write.segment_recovery` has the ends for writers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader, announced_batch
from kafkalog_spark.format.layout import MAX_INT64, NO_TIMESTAMP
from kafkalog_spark.format.offset_index import OffsetPosition
from kafkalog_spark.format.time_index import TimestampOffset
from kafkalog_spark.log.read.segment_file import SegmentFile

_SEARCH_WINDOW = 1 << 20
_CRC_BYTES = 64 << 20
"""Bytes, besides four times those searched, whose CRC a search may ask for: each wrong header can announce the whole
rest of the file. Beyond that only headers are believed whose batch fits into what is left of the allowance."""


def find_batch_behind(file: SegmentFile, damaged: int, lowest_offset: int) -> BatchHeader | None:
    """The next good batch after the damage at position `damaged`, with offsets from `lowest_offset` on: right after the
    damaged batch, if its length is right, as a value may hold whole batches, which the search would find."""
    header = file.header_or_none(damaged)
    following = file.proven_header(header.end) if header is not None else None
    if following is not None and lowest_offset <= following.base_offset <= following.last_offset:
        return following
    return find_batch(file, damaged + 1, lowest_offset)


def find_batch(file: SegmentFile, position: int, lowest_offset: int) -> BatchHeader | None:
    """The first whole batch with a valid CRC that begins at or after `position`, with offsets from `lowest_offset` on.
    Looks at every byte, since a damaged length hides where the next batch begins."""
    overlap = layout.RECORDS_AT
    high = lowest_offset >> 32
    # a header with another one after its batch is not kept from being found by those without
    left = [_CRC_BYTES + 4 * max(file.size - position, 0)] * 2
    while position < file.size - layout.LOG_OVERHEAD:
        data = np.frombuffer(file.read(position, _SEARCH_WINDOW + overlap), np.uint8)
        if len(data) <= layout.MAGIC_AT:
            return None
        for at in _candidates(data, high, file.size - position).tolist():
            header = file.header_or_none(position + at)
            if header is None or not lowest_offset <= header.base_offset <= header.last_offset:
                continue
            followed = header.end == file.size or file.header_or_none(header.end) is not None
            if header.size > left[followed]:
                continue
            left[followed] -= header.size
            if file.proven_header(header.position) is not None:
                return header
        position += _SEARCH_WINDOW
    return None


def _candidates(data: np.ndarray, high: int, left: int) -> np.ndarray:
    """Positions in `data` that look like a header: magic 0-2, a length below the `left` bytes of the file, and the
    upper half of the offset `high` or one more."""
    n = min(len(data) - layout.MAGIC_AT, _SEARCH_WINDOW)
    if not data.any():
        return np.empty(0, np.int64)
    likely = np.flatnonzero(data[layout.MAGIC_AT : layout.MAGIC_AT + n] <= 2)

    def word(at: int) -> np.ndarray:
        parts = [data[likely + at + i].astype(np.int64) << (24 - 8 * i) for i in range(4)]
        return parts[0] | parts[1] | parts[2] | parts[3]

    offset_high, length = word(layout.OFFSET_AT), word(layout.LENGTH_AT)
    good = (offset_high >= high) & (offset_high <= high + 1)
    good &= (length >= layout.LEGACY_MIN_SIZE[0] - layout.LOG_OVERHEAD) & (length <= left - layout.LOG_OVERHEAD)
    return likely[good]


# Offsets rise from batch to batch, outside the CRC: of two neighbours that contradict each other either may be damaged.


def follower_lies(previous: int, base: int, last: int, follower: int, after: int | None) -> bool:
    """True if, of a batch with offsets `base` to `last` and one after it that begins at `follower` <= last, the second
    has the wrong offsets. The first one is right when it begins right after `previous`, the last offset before both, or
    when the third, which begins at `after` (None: there is none), follows it; otherwise it was moved upward."""
    if follower <= previous or base == previous + 1:
        return True
    return after is not None and after > last


def moved_upward(header: BatchHeader, previous: int, follower: BatchHeader) -> CorruptBatch:
    """The error for a batch whose offsets its follower proves wrong."""
    return CorruptBatch(
        f"offsets {header.base_offset} to {header.last_offset} do not fit between {previous} and the next batch, which "
        f"begins at offset {follower.base_offset} (byte {follower.position})",
        position=header.position,
        offset=header.base_offset,
    )


def base_behind(file: SegmentFile, header: BatchHeader) -> int | None:
    """Where the good batch after that of `header` begins; None when there is none."""
    after = file.proven_header(header.end)
    return None if after is None else after.base_offset


def ordered_headers(file: SegmentFile, position: int, lowest: int, *, every_crc: bool = False) -> Iterator[BatchHeader]:
    """The headers from `position` on whose offsets begin at `lowest`, rise, and end before the next segment; each is
    given when the one after it agrees. every_crc: all CRCs are checked, not only where offsets do not fit. Raises as
    SegmentFile.good_headers, and CorruptBatch for the batch whose offsets are wrong."""
    held: BatchHeader | None = None
    previous = lowest - 1
    source = file.good_headers(position) if every_crc else file.headers(position)
    while True:
        try:
            header = next(source, None)
            if header is not None and held is not None and header.base_offset <= held.last_offset:
                file.check_crc(header)
                base, last = held.base_offset, held.last_offset
                if not follower_lies(previous, base, last, header.base_offset, base_behind(file, header)):
                    raise moved_upward(held, previous, header)
                file.check_offsets(header, last + 1)
            elif header is not None:
                try:
                    file.check_offsets(header, (previous if held is None else held.last_offset) + 1)
                except CorruptBatch:
                    file.check_crc(header)  # a header that is damaged altogether is not a matter of its offsets
                    raise
        except KafkalogError as error:
            if held is not None and error.position != held.position:
                yield held
            raise
        if held is not None:
            yield held
            previous = held.last_offset
        if header is None:
            return
        held = header


# Timestamps of a segment, as its time index has them as far as the log confirms it.
#
# An entry (T, O) says that the largest timestamp up to offset O is T. It is believed when the batch that holds O has
# the max timestamp T; whatever follows O is looked up in the headers of batches whose CRC is valid. So a missing,
# short, stale or garbled time index costs reading, and hides nothing.


def largest_timestamp(file: SegmentFile) -> int:
    """The largest timestamp (ms) in the segment, NO_TIMESTAMP when it has none, MAX_INT64 for a closed one that ends
    inside a batch: nobody knows. Control batches count, as for Kafka. Damage is passed over where
    file.pass_over_damage; else raises CorruptBatch, UnsupportedFormat."""
    last = file.time_index.last if file.is_whole else None
    proven = _proven(file, last)
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


def position_for_timestamp(file: SegmentFile, timestamp: int) -> tuple[int, int]:
    """(position, offset) from which every record >= `timestamp` ms is found: by the time index, which is one of whole
    files; the beginning where it cannot help."""
    entry = file.time_index.floor_before(timestamp) if file.is_whole else None
    return _proven(file, entry) or (file.begin, file.first_offset)


def _proven(file: SegmentFile, entry: TimestampOffset | None) -> tuple[int, int] | None:
    """(position, offset) after the batch that holds the offset of an entry of the time index: no record before that has
    a larger timestamp than the entry. None when the two do not agree."""
    if entry is None or entry.offset < file.base_offset:
        return None
    try:
        for header in file.headers(file.locate(entry.offset)):
            if header.last_offset >= entry.offset:
                if header.max_timestamp != entry.timestamp or (header.magic == 2 and header.base_offset > entry.offset):
                    return None
                proven = file.proven_header(header.position) is not None
                return (header.end, header.last_offset + 1) if proven else None
    except (CorruptBatch, UnsupportedFormat):
        pass
    return None


_ENTRIES_TRIED = 4
"""Index entries, from the last one back, that are tried as the place to begin; then the segment's first byte."""
_NEAR = 1 << 20
"""Bytes. An end known from before that lies so near the file's is gone on from without asking the index."""


class LogEnd(NamedTuple):
    """Log end offset (LEO: the next one to be written) and the byte position after the last good batch. segment,
    last_batch: base offset of the last segment, and the position of that batch in it; -1: none seen."""

    offset: int
    position: int
    segment: int = -1
    last_batch: int = -1


def find_log_end(file: SegmentFile, recovery_point: int | None = None, known: LogEnd | None = None) -> LogEnd:
    """The end of the log in its last segment.

    recovery_point: offset up to which the log was flushed, read before the log. known: where the log ended once, gone
    on from if the batch there still does. Raises CorruptBatch (UnsupportedFormat) where a batch is bad that is not a
    torn tail; with file.pass_over_damage the log ends after the last good batch, whatever lies before it.
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
    """(position, lowest offset) of a batch near the end that `known` or an index entry proves; else of the first."""
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
    """Raise `error` unless what lies at `position` is what an interrupted write leaves of a log's end. next_offset: the
    one after the last good batch."""
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
