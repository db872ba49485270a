"""Scan of a range of offsets of one partition, segment by segment, as pyarrow RecordBatches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, DataLoss, KafkalogError
from kafkalog_spark.format.layout import NO_TIMESTAMP
from kafkalog_spark.log.decode.scan_buffers import ScanBuffers
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.batch_filters import batch_filters
from kafkalog_spark.log.read.batch_search import find_next_batch
from kafkalog_spark.log.read.partition_log import MAX_LISTINGS, PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import PositionHint, ScanStart, locate, locate_timestamp
from kafkalog_spark.log.read.segment_scan import ScanState, ScanStatistics, SegmentScanner, scan_segment

OnLoss = Callable[[KafkalogError], None]


def scan_partition(
    log: PartitionLog,
    start: int,
    end: int,
    request: ScanRequest | None = None,
    *,
    statistics: ScanStatistics | None = None,
    position_hint: PositionHint | None = None,
    on_loss: OnLoss | None = None,
    buffers: ScanBuffers | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of [start, end) in the order of their offsets.

    Args:
        log: The partition.
        start: First offset.
        end: End of the range: at most the log end offset, with read_committed at most the last stable offset.
        request: Columns and conditions.
        statistics: Counters to add to.
        position_hint: Position of the batch of `start` when the read was planned.
        on_loss: Called with the error for records that were deleted since the read was planned (retention, truncation);
            the scan resumes after them. If it is None, the error is raised.
        buffers: Buffers of a finished scan, to be used again.

    Raises:
        CorruptBatch, UnsupportedFormat: For damage, unless request.drop_malformed; with topic-partition, file, position
            and offset.
        DataLoss: For records that were deleted, if `on_loss` is None.
    """
    if start >= end:
        return
    request = request or ScanRequest()
    buffers = buffers or ScanBuffers()
    statistics = statistics if statistics is not None else ScanStatistics()
    scanner = scanner_for(log, start, end, request, statistics, buffers)
    rows = scanner.rows
    offset, tries = start, 0
    while offset < end:
        file = log.open_segment_at(offset)
        if file is None:
            report_loss(log, offset, end, on_loss)
            break
        with file:
            if offset < file.base_offset:
                report_loss(log, offset, min(file.base_offset, end), on_loss)
                offset = file.base_offset
                if offset >= end:
                    break
            rows.set_offset_range(offset, end)
            state, changed = ScanState(0, offset), True
            statistics.segments += 1
            try:
                state.position, state.next_offset = _scan_start(file, offset, request, position_hint)
                # If no batch below `end` can have a wanted timestamp, the rest belongs to the next range.
                state.is_done = state.next_offset >= end
                if not state.is_done:
                    file.expect(state.position, end)
                tries, changed = yield from _scan_file(log, scanner, file, state, request, statistics, offset, tries)
            except FileNotFoundError as gone:
                tries = tries + 1 if state.next_offset <= offset else 0
                log.refresh_after_replacement(file, gone, tries)
            finally:
                statistics.bytes_read += file.bytes_read
        position_hint = None
        if state.is_done:
            break
        if changed:
            offset = max(offset, state.next_offset)
        elif file.next_base_offset is not None:
            tries = 0
            offset = max(file.next_base_offset, state.next_offset)
        else:
            # The last segment of the listing ended below `end`: since then it was rolled, or truncated.
            offset = max(offset, state.next_offset)
            if offset >= end:
                break
            log.refresh()
            if log.next_base_offset(log.segment_index(offset)) is None and log.log_end_offset <= offset:
                report_loss(log, offset, end, on_loss)
                break
            tries += 1
            if tries > MAX_LISTINGS:
                raise CorruptBatch(
                    f"the log ends at offset {log.log_end_offset}, and its last segment at {offset}",
                    topic_partition=log.name,
                )
    if rows.rows_filled:
        statistics.rows += rows.rows_filled
        yield rows.take()


def scanner_for(
    log: PartitionLog, start: int, end: int, request: ScanRequest, statistics: ScanStatistics, buffers: ScanBuffers
) -> SegmentScanner:
    """Return a scanner with the batch filters of [start, end)."""
    filters = batch_filters(log, start, end, request, statistics.dropped)
    return SegmentScanner(log.topic, log.partition, request, buffers, filters)


def report_loss(log: PartitionLog, start: int, end: int, on_loss: OnLoss | None) -> None:
    """Call `on_loss` with the error that records of [start, end) are gone; raise the error if `on_loss` is None."""
    error = DataLoss(
        f"records in [{start}, {end}) are gone: they were deleted (retention, DeleteRecords) or the log was truncated "
        "while it was read",
        topic_partition=log.name,
        path=log.directory,
        offset=start,
    )
    if on_loss is None:
        raise error
    on_loss(error)


def ignore_loss(gone: KafkalogError) -> None:
    """Do nothing: `on_loss` of scans that only search or count records, for which deleted records do not matter."""


class _FileScan(NamedTuple):
    """Result of reading a segment.

    Attributes:
        tries: Number of consecutive reads of a changed segment that returned nothing.
        changed: True if the segment has changed since it was listed.
    """

    tries: int
    changed: bool


def _scan_start(file: SegmentFile, offset: int, request: ScanRequest, hint: PositionHint | None) -> ScanStart:
    """Return the furthest start by the hint, the offset index and the time index."""
    position = locate(file, offset, hint)
    if request.timestamp_from_ms > NO_TIMESTAMP:
        by_time = locate_timestamp(file, request.timestamp_from_ms)
        if by_time.position > position:
            return ScanStart(by_time.position, max(offset, by_time.next_offset))
    return ScanStart(position, offset)


def _scan_file(
    log: PartitionLog,
    scanner: SegmentScanner,
    file: SegmentFile,
    state: ScanState,
    request: ScanRequest,
    statistics: ScanStatistics,
    offset: int,
    tries: int,
) -> Generator[pa.RecordBatch, None, _FileScan]:
    """Read a segment from `state` on. Damage is skipped with drop_malformed, and raises its error otherwise."""
    while True:
        error = yield from scan_segment(scanner, file, state, statistics)
        if error is None:
            return _FileScan(tries, False)
        tries = tries + 1 if state.next_offset <= offset else 0
        if state.stopped_by is not None and tries < MAX_LISTINGS and log.refresh_and_compare(file):
            return _FileScan(tries, True)
        if not request.drop_malformed:
            raise error
        statistics.dropped.append(error)
        if not _skip_damage(file, state, error):
            return _FileScan(tries, False)


def _skip_damage(file: SegmentFile, state: ScanState, error: KafkalogError) -> bool:
    """Move `state` past the damage to the next good batch of the segment; return False if there is none."""
    damaged = state.position if error.position is None else error.position
    lowest, end = max(state.lowest_offset, file.base_offset), file.next_base_offset
    next_batch = find_next_batch(file, damaged, lowest)
    while next_batch is not None and end is not None and next_batch.last_offset >= end:  # a batch of another segment
        next_batch = find_next_batch(file, next_batch.position, lowest)
    state.stopped_by = None
    if next_batch is None:
        if end is None:  # the offsets of the last batch count even if its records cannot be read
            header = file.proven_header(damaged)
            end = state.next_offset if header is None else header.last_offset + 1
        state.next_offset = max(state.next_offset, end)
        return False
    state.position, state.lowest_offset = next_batch.position, next_batch.base_offset
    state.next_offset = max(state.next_offset, next_batch.base_offset)
    return True
