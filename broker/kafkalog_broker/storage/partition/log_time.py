"""Offsets by timestamp, as ListOffsets asks for them (UnifiedLog.fetchOffsetByTimestamp).

They read, and decompress up to MAX_DECOMPRESSED bytes at a time: for a thread, not for the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.message_sets import inner_messages
from kafkalog_broker.storage.append.recompression import unpacked
from kafkalog_broker.storage.append.record_walk import find_timestamp
from kafkalog_broker.storage.partition.log_segment import BatchBounds, LogSegment
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.batch_header import BatchHeader, parse_header, wrapper_value_at
from kafkalog_spark.format.layout import ATTRIBUTE_LOG_APPEND_TIME, NO_TIMESTAMP, RECORDS_AT, TimestampType

_LOWEST = -(2**63)

MAX_TIMESTAMP = -3
"""What ListOffsets asks for by this number: the record with the largest timestamp (KIP-734)."""

REMEMBERED = 64
"""Answers that a segment remembers: about 20 kB. Consumers of many groups begin at the same time."""


class TimestampAndOffset(NamedTuple):
    """A record: its timestamp (ms), its offset, and the leader epoch that wrote it (-1 when not known)."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(
    segments: Sequence[LogSegment], timestamp: int, log_start_offset: int
) -> TimestampAndOffset | None:
    """The first record with a timestamp of at least `timestamp` ms and an offset of at least `log_start_offset`."""
    for segment in segments:
        if segment.max_timestamp[0] < timestamp:
            continue
        found = _in_segment(segment, timestamp, log_start_offset)
        if found is not None:
            return found
    return None


def max_timestamp_offset(segments: Sequence[LogSegment]) -> TimestampAndOffset | None:
    """The first record with the largest timestamp of the log; None when no record has one."""
    latest = max(segments, key=lambda segment: segment.max_timestamp[0], default=None)
    if latest is None:
        return None
    timestamp, offset = latest.max_timestamp
    if timestamp == NO_TIMESTAMP:
        return None
    bounds = latest.locate(offset)
    if bounds is None:
        return None
    for candidate in latest.bounds_from(bounds.position):
        header = parse_header(latest.handle().read(candidate.position, RECORDS_AT), 0, candidate.position)
        if header.max_timestamp == timestamp:
            question = (candidate.position, MAX_TIMESTAMP, 0)
            return _answered(latest, question, lambda: _max_of(*_batch(latest, candidate)))  # noqa: B023
    return None


def _in_segment(segment: LogSegment, timestamp: int, log_start_offset: int) -> TimestampAndOffset | None:
    """The time index says after which offset to look: up to there everything is older."""
    entry = segment.time_index().floor_before(timestamp)
    offset = max(log_start_offset, segment.base_offset if entry is None else entry.offset)
    bounds = segment.locate(offset)
    if bounds is None:
        return None
    for candidate in segment.bounds_from(bounds.position):
        header = parse_header(segment.handle().read(candidate.position, RECORDS_AT), 0, candidate.position)
        if header.max_timestamp >= timestamp:
            question = (candidate.position, timestamp, log_start_offset)
            found = _answered(segment, question, lambda: _in_batch(segment, candidate, timestamp, log_start_offset))  # noqa: B023
            if found is not None:
                return found
    return None


def _answered(
    segment: LogSegment, question: tuple[int, int, int], search: Callable[[], TimestampAndOffset | None]
) -> TimestampAndOffset | None:
    """What a batch that never changes was asked before is not searched again: a batch of 60 kB may decompress to 60 MB.

    question: (position, timestamp, lowest offset). A segment remembers REMEMBERED answers. Raises BrokerError
    (CORRUPT_MESSAGE).
    """
    answers = segment.found_by_time
    if question in answers:
        return cast(TimestampAndOffset | None, answers[question])
    try:
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
    segment: LogSegment, bounds: BatchBounds, timestamp: int, lowest_offset: int
) -> TimestampAndOffset | None:
    header, batch = _batch(segment, bounds)
    append_time = bool(header.attributes & ATTRIBUTE_LOG_APPEND_TIME)
    if header.magic < 2:
        for offset, message_time in _messages(header, batch):
            if message_time >= timestamp and offset >= lowest_offset:
                return TimestampAndOffset(message_time, offset, header.leader_epoch)
        return None
    if header.record_count <= 0:
        return None
    found = find_timestamp(
        _records(header, batch),
        header.record_count,
        header.base_timestamp,
        _LOWEST if append_time else timestamp,
        lowest_offset - header.base_offset,
    )
    if found is None:
        return None
    return TimestampAndOffset(
        header.max_timestamp if append_time else found[0], header.base_offset + found[1], header.leader_epoch
    )


def _max_of(header: BatchHeader, batch: bytes) -> TimestampAndOffset:
    """The first record of a batch that has its max timestamp (DefaultRecordBatch.offsetOfMaxTimestamp)."""
    offset = header.last_offset
    if header.magic < 2:
        found_times = (
            offset for offset, message_time in _messages(header, batch) if message_time == header.max_timestamp
        )
        offset = next(found_times, header.last_offset)
    elif header.record_count > 0:
        if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
            offset = header.base_offset
        else:
            records = _records(header, batch)
            found = find_timestamp(records, header.record_count, header.base_timestamp, header.max_timestamp, 0)
            offset = header.base_offset + found[1] if found is not None else header.last_offset
    return TimestampAndOffset(header.max_timestamp, offset, header.leader_epoch)


def _messages(header: BatchHeader, batch: bytes) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of a message of format v0 or v1, or of each in a wrapper; LogAppendTime is the wrapper's."""
    if not header.codec:
        yield header.last_offset, header.max_timestamp
        return
    payload = unpacked(header.codec, memoryview(batch)[wrapper_value_at(batch, header.magic) :])
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    for offset, timestamp in inner_messages(payload, header.magic, header.last_offset):
        yield offset, header.max_timestamp if append_time else timestamp


def _batch(segment: LogSegment, bounds: BatchBounds) -> tuple[BatchHeader, bytes]:
    batch = segment.handle().read(bounds.position, bounds.size)
    return parse_header(batch, 0, bounds.position), batch


def _records(header: BatchHeader, batch: bytes) -> memoryview:
    records = memoryview(batch)[RECORDS_AT:]
    return unpacked(header.codec, records) if header.codec else records
