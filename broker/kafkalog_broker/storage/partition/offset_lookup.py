"""Look-ups in segments, local or remote: offsets by timestamp (UnifiedLog.fetchOffsetByTimestamp), which read and
decompress, and are for a thread; aborted records."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, cast

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.message_set import inner_messages
from kafkalog_broker.storage.append.recompression import unpacked
from kafkalog_broker.storage.append.record_walk import find_timestamp
from kafkalog_broker.storage.partition.log_segment import BatchBounds, LogSegment, TimedSegment
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.batch_header import BatchHeader, parse_header, wrapper_value_at
from kafkalog_spark.format.layout import ATTRIBUTE_LOG_APPEND_TIME, MIN_INT64, NO_TIMESTAMP, RECORDS_AT, TimestampType
from kafkalog_spark.format.transaction_index import AbortedTransaction, collect_aborted

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Timestamps of ListOffsets that ask for the end, the beginning, the record of the largest timestamp (KIP-734)."""

_unpacking = threading.Lock()
"""Held while a batch is searched: one small batch may decompress to MAX_DECOMPRESSED bytes, and many threads search."""
REMEMBERED = 64  # answers that a segment remembers: about 20 kB. Consumers of many groups begin at the same time


class TimestampAndOffset(NamedTuple):
    """A record: its timestamp (ms), its offset, and the leader epoch that wrote it (-1 when not known)."""

    timestamp: int
    offset: int
    leader_epoch: int


def aborted_in(segments: Iterable[LogSegment], offset: int, up_to: int) -> list[AbortedTransaction]:
    """Aborted transactions in [offset, up_to); `segments` begin with that of `offset`. Raises OSError, CorruptIndex."""
    found: list[AbortedTransaction] = []
    for segment in segments:
        search = collect_aborted(segment.aborted(), offset, up_to)
        found += search.transactions
        if search.complete:
            break
    return found


def offset_in_segment(segment: TimedSegment, timestamp: int, log_start_offset: int) -> TimestampAndOffset | None:
    """The first record of a segment, at or above the log start offset, with a timestamp of at least `timestamp` ms.
    Raises BrokerError (CORRUPT_MESSAGE), CorruptLog, OSError."""
    # From the offset in the time index on: up to there everything is older.
    entry = segment.time_index().floor_before(timestamp)
    bounds = segment.locate(max(log_start_offset, segment.base_offset if entry is None else entry.offset))
    for candidate in () if bounds is None else segment.bounds_from(bounds.position):
        if _header(segment, candidate).max_timestamp >= timestamp:
            search = partial(_in_batch, segment, candidate, timestamp, log_start_offset)
            found = _answered(segment, (candidate.position, timestamp, log_start_offset), search)
            if found is not None:
                return found
    return None


def offset_of_max_timestamp(segments: Iterable[LogSegment]) -> TimestampAndOffset | None:
    """The first record with the largest timestamp; None when none has one. Raises as offset_in_segment."""
    latest = max(segments, key=lambda segment: segment.max_timestamp[0])
    timestamp, offset = latest.max_timestamp
    bounds = None if timestamp == NO_TIMESTAMP else latest.locate(offset)
    for candidate in () if bounds is None else latest.bounds_from(bounds.position):
        if _header(latest, candidate).max_timestamp == timestamp:
            return _answered(latest, (candidate.position, MAX_TIMESTAMP, 0), partial(_max_of, latest, candidate))
    return None


# Look-ups by timestamp in one batch


def _answered(
    segment: TimedSegment, question: tuple[int, int, int], search: Callable[[], TimestampAndOffset | None]
) -> TimestampAndOffset | None:
    """Cached result of `search`, for question (position, timestamp, lowest offset): a batch never changes, and one of
    60 kB may decompress to 60 MB. Raises BrokerError (CORRUPT_MESSAGE)."""
    answers = segment.found_by_time
    if question in answers:
        return cast(TimestampAndOffset | None, answers[question])
    try:
        with _unpacking:
            found = search()
    except CorruptBatch as error:  # what is in one batch: the log is as good as before
        position, timestamp, _ = question
        raise BrokerError(
            ErrorCode.corrupt_message,
            f"the batch at byte {position} of {segment.log_path} cannot be searched for timestamp {timestamp}: {error}",
        ) from error
    if len(answers) >= REMEMBERED:
        answers.clear()
    answers[question] = found
    return found


def _in_batch(
    segment: TimedSegment, bounds: BatchBounds, timestamp: int, lowest_offset: int
) -> TimestampAndOffset | None:
    batch = segment.handle().read(bounds.position, bounds.size)
    header = parse_header(batch, 0, bounds.position)
    append_time = bool(header.attributes & ATTRIBUTE_LOG_APPEND_TIME)
    if header.magic < 2:
        for offset, message_time in _messages(header, batch):
            if message_time >= timestamp and offset >= lowest_offset:
                return TimestampAndOffset(message_time, offset, header.leader_epoch)
        return None
    if header.record_count <= 0:
        return None
    records = memoryview(batch)[RECORDS_AT:]
    found = find_timestamp(
        unpacked(header.codec, records) if header.codec else records,
        header.record_count,
        header.base_timestamp,
        MIN_INT64 if append_time else timestamp,
        lowest_offset - header.base_offset,
    )
    if found is None:
        return None
    return TimestampAndOffset(
        header.max_timestamp if append_time else found[0], header.base_offset + found[1], header.leader_epoch
    )


def _max_of(segment: LogSegment, bounds: BatchBounds) -> TimestampAndOffset:
    """The first record of a batch that has its max timestamp (DefaultRecordBatch.offsetOfMaxTimestamp)."""
    header = _header(segment, bounds)
    if header.magic == 2 and header.record_count > 0 and header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        return TimestampAndOffset(header.max_timestamp, header.base_offset, header.leader_epoch)
    found = _in_batch(segment, bounds, header.max_timestamp, 0)
    return found or TimestampAndOffset(header.max_timestamp, header.last_offset, header.leader_epoch)


def _messages(header: BatchHeader, batch: bytes) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of a message of format v0 or v1, or of each in a wrapper; LogAppendTime is the wrapper's."""
    if not header.codec:
        yield header.last_offset, header.max_timestamp
        return
    payload = unpacked(header.codec, memoryview(batch)[wrapper_value_at(batch, header.magic) :])
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    for offset, timestamp in inner_messages(payload, header.magic, header.last_offset):
        yield offset, header.max_timestamp if append_time else timestamp


def _header(segment: TimedSegment, bounds: BatchBounds) -> BatchHeader:
    return parse_header(segment.handle().read(bounds.position, RECORDS_AT), 0, bounds.position)


# ListOffsets 0: where segments begin, and where the log ends, newest first (Log.legacyFetchOffsetsBefore).
#
# Before messages had timestamps this was how a consumer found a place by time: a segment counts as written when its
# file was last modified.

Place = tuple[int, int]  # an offset, and from when on it counts (ms)


def listed_offsets(places: Sequence[Place], timestamp: int, most: int, high_watermark: int) -> list[int]:
    """At most `most` offsets, falling, from the newest one that was there at `timestamp` ms on; LATEST, EARLIEST: from
    the last, from the first one on. places: by offset. Consumers see no end above the high watermark, but that."""
    if timestamp == LATEST:
        end = len(places)
    elif timestamp == EARLIEST:
        end = min(len(places), 1)
    else:
        end = next((slot for slot in range(len(places), 0, -1) if places[slot - 1][1] <= timestamp), 0)
    found = sorted((offset for offset, _ in places[max(end - most, 0) : end]), reverse=True)
    if found and found[0] > high_watermark:
        return [high_watermark, *(offset for offset in found if offset <= high_watermark)]
    return found


def segment_places(
    segments: Iterable[LogSegment], log_start_offset: int, log_end_offset: int, now_ms: int, *, with_times: bool
) -> list[Place]:
    """Where segments begin, and the log end offset when the last one holds something. with_times: the files are asked
    for theirs; for a thread. A segment that is removed meanwhile is left out. Raises OSError."""
    places: list[Place] = []
    for segment in segments:
        try:
            modified_ms = os.stat(segment.log_path).st_mtime_ns // 1_000_000 if with_times else 0
        except FileNotFoundError:
            continue
        places.append((max(segment.base_offset, log_start_offset), modified_ms))
    if not places or places[-1][0] < log_end_offset:
        places.append((log_end_offset, now_ms))
    return places
