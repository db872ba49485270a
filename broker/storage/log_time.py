"""Offsets by timestamp, as ListOffsets asks for them (UnifiedLog.fetchOffsetByTimestamp)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.storage.log_segment import BatchBounds, LogSegment
from broker.storage.recompression import unpacked
from broker.storage.record_walk import find_timestamp
from kafkalog_spark.log.batch_header import BatchHeader, parse_header
from kafkalog_spark.log.layout import ATTRIBUTE_LOG_APPEND_TIME, NO_TIMESTAMP, RECORDS_AT

_LOWEST = -(2**63)


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
        header, batch = _batch(latest, candidate)
        if header.max_timestamp == timestamp:
            return _max_of(header, batch)
    return None


def _in_segment(segment: LogSegment, timestamp: int, log_start_offset: int) -> TimestampAndOffset | None:
    """The time index says behind which offset to look: up to there everything is older."""
    entry = segment.time_index().floor_before(timestamp)
    offset = max(log_start_offset, segment.base_offset if entry is None else entry.offset)
    bounds = segment.locate(offset)
    if bounds is None:
        return None
    lowest = log_start_offset
    for candidate in segment.bounds_from(bounds.position):
        header = parse_header(segment.handle().read(candidate.position, RECORDS_AT), 0, candidate.position)
        if header.max_timestamp >= timestamp:
            found = _in_batch(segment, candidate, timestamp, lowest)
            if found is not None:
                return found
    return None


def _in_batch(
    segment: LogSegment, bounds: BatchBounds, timestamp: int, lowest_offset: int
) -> TimestampAndOffset | None:
    header, batch = _batch(segment, bounds)
    if header.magic < 2:
        # The messages in a wrapper are not opened: reading from the first of them on misses none.
        return TimestampAndOffset(header.max_timestamp, max(bounds.base_offset, lowest_offset), header.leader_epoch)
    if header.record_count <= 0:
        return None
    append_time = bool(header.attributes & ATTRIBUTE_LOG_APPEND_TIME)
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
    if header.magic == 2 and header.record_count > 0:
        if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
            offset = header.base_offset
        else:
            records = _records(header, batch)
            found = find_timestamp(records, header.record_count, header.base_timestamp, header.max_timestamp, 0)
            offset = header.base_offset + found[1] if found is not None else header.last_offset
    return TimestampAndOffset(header.max_timestamp, offset, header.leader_epoch)


def _batch(segment: LogSegment, bounds: BatchBounds) -> tuple[BatchHeader, bytes]:
    batch = segment.handle().read(bounds.position, bounds.size)
    return parse_header(batch, 0, bounds.position), batch


def _records(header: BatchHeader, batch: bytes) -> memoryview:
    records = memoryview(batch)[RECORDS_AT:]
    return unpacked(header.codec, records) if header.codec else records
