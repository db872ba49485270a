"""Look-up of offsets by timestamp in a log, or in one local or remote segment (`UnifiedLog.fetchOffsetByTimestamp`).

A look-up reads and decompresses batches, so it runs on a worker thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, cast

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.decompression import decompress_records, release_frames
from kafkalog_broker.storage.append.message_set import inner_messages
from kafkalog_broker.storage.append.record_walk import find_timestamp
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.segment_lookup import BatchBounds, SegmentLookup
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.batch_header import BatchHeader, parse_header, wrapper_value_at
from kafkalog_spark.format.layout import ATTRIBUTE_LOG_APPEND_TIME, MIN_INT64, NO_TIMESTAMP, RECORDS_AT, TimestampType

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Special timestamps of ListOffsets: log end, log start, and the record with the largest timestamp (KIP-734)."""

_decompressing = threading.Lock()
"""Held while a batch is decompressed and searched, so that only one thread at a time uses up to MAX_DECOMPRESSED bytes.
It is not held while the batch is read, because slow remote storage would then delay all other look-ups."""
MAX_CACHED = 64
"""Largest number of results cached per segment. Consumers of many groups often start at the same timestamp."""


class TimestampAndOffset(NamedTuple):
    """Offset of a record, with its timestamp in ms and its leader epoch (-1 if unknown)."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampAndOffset | None:
    """Return the first record of a log with a timestamp of at least `timestamp` ms, or None.

    Raises:
        BrokerError: kafka_storage_error; corrupt_message if a batch cannot be decoded.
    """

    def search(segments: Sequence[LogSegment]) -> TimestampAndOffset | None:
        start = log.log_start_offset
        for segment in segments:
            if segment.max_timestamp.timestamp >= timestamp:
                found = offset_in_segment(segment, timestamp, start)
                if found is not None:
                    return found
        return None

    return log.search_segments(search)


def max_timestamp_offset(log: Log) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp; None if no record has one.

    Raises like `offset_for_timestamp`.
    """
    return log.search_segments(_offset_of_max_timestamp)


def offset_in_segment(segment: SegmentLookup, timestamp: int, log_start_offset: int) -> TimestampAndOffset | None:
    """Return the first record at or above the log start offset with a timestamp of at least `timestamp` ms, or None.

    Raises:
        BrokerError: CORRUPT_MESSAGE if the batch cannot be decoded.
        CorruptLog, OSError: If the segment cannot be read.
    """
    # All records before the offset of this entry are older.
    entry = segment.time_index().floor_before(timestamp)
    bounds = segment.locate(max(log_start_offset, segment.base_offset if entry is None else entry.offset))
    for candidate in () if bounds is None else segment.bounds_from(bounds.position):
        if _header(segment, candidate).max_timestamp >= timestamp:
            search = partial(_in_batch, segment, candidate, timestamp, log_start_offset)
            found = _cached(segment, (candidate.position, timestamp, log_start_offset), search)
            if found is not None:
                return found
    return None


def _offset_of_max_timestamp(segments: Sequence[LogSegment]) -> TimestampAndOffset | None:
    latest = max(segments, key=lambda segment: segment.max_timestamp.timestamp)
    timestamp, offset = latest.max_timestamp
    bounds = None if timestamp == NO_TIMESTAMP else latest.locate(offset)
    for candidate in () if bounds is None else latest.bounds_from(bounds.position):
        if _header(latest, candidate).max_timestamp == timestamp:
            return _cached(latest, (candidate.position, MAX_TIMESTAMP, 0), partial(_max_of, latest, candidate))
    return None


def _cached(
    segment: SegmentLookup, key: tuple[int, int, int], search: Callable[[], TimestampAndOffset | None]
) -> TimestampAndOffset | None:
    """Return the result of `search` from the cache, or call `search` and cache its result.

    A result stays valid, because batches never change.

    Args:
        key: Position of the batch, timestamp, lowest offset.

    Raises:
        BrokerError: CORRUPT_MESSAGE if the batch cannot be decoded.
    """
    cache = segment.time_lookup_cache
    if key in cache:
        return cast(TimestampAndOffset | None, cache[key])
    try:
        result = search()
    except CorruptBatch as error:  # one damaged batch does not take the log offline
        release_frames(error)
        position, timestamp, _ = key
        raise BrokerError(
            ErrorCode.corrupt_message,
            f"the batch at byte {position} of {segment.log_path} cannot be searched for timestamp {timestamp}: {error}",
        ) from error
    if len(cache) >= MAX_CACHED:
        cache.clear()
    cache[key] = result
    return result


def _in_batch(
    segment: SegmentLookup, bounds: BatchBounds, timestamp: int, lowest_offset: int
) -> TimestampAndOffset | None:
    batch = segment.handle().read(bounds.position, bounds.size)
    header = parse_header(batch, 0, bounds.position)
    with _decompressing:
        return _search(header, batch, timestamp, lowest_offset)


def _search(header: BatchHeader, batch: bytes, timestamp: int, lowest_offset: int) -> TimestampAndOffset | None:
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
        decompress_records(header.codec, records) if header.codec else records,
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
    """Return the first record with a batch's largest timestamp (Kafka: `DefaultRecordBatch.offsetOfMaxTimestamp`)."""
    header = _header(segment, bounds)
    if header.magic == 2 and header.record_count > 0 and header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        return TimestampAndOffset(header.max_timestamp, header.base_offset, header.leader_epoch)
    found = _in_batch(segment, bounds, header.max_timestamp, 0)
    return found or TimestampAndOffset(header.max_timestamp, header.last_offset, header.leader_epoch)


def _messages(header: BatchHeader, batch: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and timestamp of a message of format v0 or v1, or of each message in a wrapper.

    With LogAppendTime all have the wrapper's timestamp.
    """
    if not header.codec:
        yield header.last_offset, header.max_timestamp
        return
    payload = decompress_records(header.codec, memoryview(batch)[wrapper_value_at(batch, header.magic) :])
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    for offset, timestamp in inner_messages(payload, header.magic, header.last_offset):
        yield offset, header.max_timestamp if append_time else timestamp


def _header(segment: SegmentLookup, bounds: BatchBounds) -> BatchHeader:
    return parse_header(segment.handle().read(bounds.position, RECORDS_AT), 0, bounds.position)
