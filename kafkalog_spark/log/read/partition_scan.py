"""Scan of a range of offsets of one partition, segment by segment, as pyarrow RecordBatches.

`segment_scan` reads one segment and stops at the first bad batch. This file decides what follows: it opens the next
segment, lists the log again after a segment was changed or deleted, and reports or skips damage.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import Enum, auto

import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format.layout import NO_TIMESTAMP
from kafkalog_spark.log.decode.scan_buffers import ScanBuffers
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.batch_filters import batch_filters
from kafkalog_spark.log.read.batch_search import find_next_batch
from kafkalog_spark.log.read.deleted_records import OnLoss, report_loss
from kafkalog_spark.log.read.partition_log import MAX_LISTINGS, PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import PositionHint, ScanStart, locate, locate_timestamp
from kafkalog_spark.log.read.segment_scan import ScanState, ScanStatistics, SegmentScanner, scan_segment


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
        position_hint: Position of the batch that contains `start`, as found when the read was planned. It may be
            outdated.
        on_loss: Called with a DataLoss error if records were deleted since the read was planned; the scan then resumes
            after them. If it is None, the error is raised.
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
    scan = _PartitionScan(
        log=log, end=end, request=request, statistics=statistics, on_loss=on_loss, scanner=scanner, offset=start
    )
    yield from scan.run(position_hint)
    rows = scanner.rows
    if rows.rows_filled:
        statistics.rows += rows.rows_filled
        yield rows.take()


def scanner_for(
    log: PartitionLog, start: int, end: int, request: ScanRequest, statistics: ScanStatistics, buffers: ScanBuffers
) -> SegmentScanner:
    """Return a scanner with the batch filters of [start, end)."""
    filters = batch_filters(log, start, end, request, statistics.dropped)
    return SegmentScanner(log.topic, log.partition, request, buffers, filters)


class _ReadResult(Enum):
    """How the read of a segment ended."""

    RANGE_END = auto()  # the end of the offset range was reached
    SEGMENT_END = auto()  # all records of the segment were read; the range goes on
    SEGMENT_CHANGED = auto()  # the segment was changed or deleted during the read, and the log was listed again


@dataclass(slots=True, kw_only=True)
class _PartitionScan:
    """Scan of the segments of a log. Only `offset` and `reads_without_progress` change.

    Attributes:
        offset: Offset at which the read of a segment begins. It moves when that read has ended; until then the progress
            is in `ScanState.next_offset`.
        reads_without_progress: Number of consecutive reads that a change or damage stopped before they got beyond
            `offset`, or that ended at the last listed segment. The log is listed again after each of them, at most
            MAX_LISTINGS times.
    """

    log: PartitionLog
    end: int
    request: ScanRequest
    statistics: ScanStatistics
    on_loss: OnLoss | None
    scanner: SegmentScanner
    offset: int
    reads_without_progress: int = 0

    def run(self, position_hint: PositionHint | None) -> Iterator[pa.RecordBatch]:
        """Yield the full Arrow batches of [offset, end). The last rows remain in the row buffers of the scanner.

        Args:
            position_hint: Position of the batch that contains `offset`, or None.
        """
        while self.offset < self.end:
            file = self.log.open_segment_at(self.offset)
            if file is None:  # no segment is left
                self._skip_deleted(self.end)
                return
            with file:
                if self.offset < file.base_offset:
                    self._skip_deleted(min(file.base_offset, self.end))
                    if self.offset >= self.end:
                        return
                result = yield from self._read_segment(file, position_hint)
            position_hint = None  # it is for the first segment only
            if result is _ReadResult.RANGE_END:
                return
            if result is _ReadResult.SEGMENT_END:
                self._move_to_next_segment(file)
            # After SEGMENT_CHANGED, the segment of `offset` is looked up in the new listing.

    def _skip_deleted(self, until: int) -> None:
        """Report that the records of [offset, until) were deleted, and move `offset` past them."""
        report_loss(self.log, self.offset, until, self.on_loss)
        self.offset = until

    def _read_segment(
        self, file: SegmentFile, hint: PositionHint | None
    ) -> Generator[pa.RecordBatch, None, _ReadResult]:
        """Read a segment from `offset` on, then move `offset` to where the read ended."""
        self.scanner.rows.set_offset_range(self.offset, self.end)
        self.statistics.segments += 1
        state = ScanState(position=0, next_offset=self.offset)
        try:
            state.position, state.next_offset = _find_start(file, self.offset, self.request, hint)
            if state.next_offset >= self.end:  # by the time index, no record below `end` is new enough
                return _ReadResult.RANGE_END
            file.expect(state.position, self.end)
            result = yield from self._read_past_damage(file, state)
        except FileNotFoundError as error:
            self._count_stopped_read(state)
            self.log.refresh_after_replacement(file, error, self.reads_without_progress)
            result = _ReadResult.SEGMENT_CHANGED
        finally:
            self.statistics.bytes_read += file.bytes_read
        self.offset = max(self.offset, state.next_offset)
        return result

    def _read_past_damage(self, file: SegmentFile, state: ScanState) -> Generator[pa.RecordBatch, None, _ReadResult]:
        """Read a segment from `state` on. Skip damaged batches with drop_malformed; otherwise raise their error.

        Neither is done if the segment was changed during the read, because it may look damaged for that reason only.
        """
        while True:
            error = yield from scan_segment(self.scanner, file, state, self.statistics)
            if error is None:
                return _ReadResult.RANGE_END if state.is_done else _ReadResult.SEGMENT_END
            self._count_stopped_read(state)
            if self._recheck_segment(file, state):
                return _ReadResult.SEGMENT_CHANGED
            if not self.request.drop_malformed:
                raise error
            self.statistics.dropped.append(error)
            if not _skip_damage(file, state, error):
                return _ReadResult.SEGMENT_END

    def _count_stopped_read(self, state: ScanState) -> None:
        """Count a read that was stopped by a change or by damage; start again at 0 if it got beyond `offset`."""
        self.reads_without_progress = self.reads_without_progress + 1 if state.next_offset <= self.offset else 0

    def _recheck_segment(self, file: SegmentFile, state: ScanState) -> bool:
        """List the log again; return True if the segment has changed, which may be why it looked damaged.

        It is not listed again if `stopped_by` is None. Then a change cannot be the reason: a read failed, or a batch
        cannot be decoded although its CRC is valid, which proves that it was read as it was written.
        """
        if state.stopped_by is None or self.reads_without_progress >= MAX_LISTINGS:
            return False
        return self.log.refresh_and_compare(file)

    def _move_to_next_segment(self, file: SegmentFile) -> None:
        """Move `offset` to the segment after `file`. If the listing has none, although `end` is higher, list again."""
        if file.next_base_offset is not None:
            self.reads_without_progress = 0
            self.offset = max(self.offset, file.next_base_offset)
        elif self.offset < self.end:
            self._refresh_at_end_of_listing()

    def _refresh_at_end_of_listing(self) -> None:
        """List the log again: its last listed segment ended below `end`, so it was rolled or truncated meanwhile."""
        log = self.log
        log.refresh()
        if log.next_base_offset(log.segment_index(self.offset)) is None and log.log_end_offset <= self.offset:
            self._skip_deleted(self.end)  # truncated
            return
        self.reads_without_progress += 1
        if self.reads_without_progress > MAX_LISTINGS:
            raise CorruptBatch(
                f"the log kept changing: after {MAX_LISTINGS} listings its log end offset is {log.log_end_offset}, but "
                f"the last segment ends at offset {self.offset}",
                topic_partition=log.name,
                hint="read again; if this repeats while nothing writes, check the log with kafkalog-check",
            )


def _find_start(file: SegmentFile, offset: int, request: ScanRequest, hint: PositionHint | None) -> ScanStart:
    """Return the start by the hint or the offset index, or the one by the time index if that is further."""
    by_offset = ScanStart(locate(file, offset, hint), offset)
    if request.timestamp_from_ms <= NO_TIMESTAMP:  # every record is new enough
        return by_offset
    by_time = locate_timestamp(file, request.timestamp_from_ms)
    if by_time.position <= by_offset.position:
        return by_offset
    return ScanStart(by_time.position, max(offset, by_time.next_offset))


def _skip_damage(file: SegmentFile, state: ScanState, error: KafkalogError) -> bool:
    """Move `state` past the damage to the next good batch of the segment; return False if there is none."""
    damaged = state.position if error.position is None else error.position
    lowest, end = max(state.lowest_offset, file.base_offset), file.next_base_offset
    next_batch = find_next_batch(file, damaged, lowest)
    # A batch that was found inside a value is not part of this log, and may have offsets that belong to later segments.
    while next_batch is not None and end is not None and next_batch.last_offset >= end:
        next_batch = find_next_batch(file, next_batch.position, lowest)
    state.stopped_by = None
    if next_batch is not None:
        state.position, state.lowest_offset = next_batch.position, next_batch.base_offset
        state.next_offset = max(state.next_offset, next_batch.base_offset)
        return True
    if end is None:
        # Skip the offsets of the last batch if a valid CRC proves its header, so that only its records are wrong.
        header = file.proven_header(damaged)
        end = state.next_offset if header is None else header.last_offset + 1
    state.next_offset = max(state.next_offset, end)
    return False
