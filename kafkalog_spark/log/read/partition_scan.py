"""Scan of a range of offsets of one partition, segment by segment, as pyarrow RecordBatches."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

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
        on_loss: Called with the error for records that were deleted since the read was planned; the scan resumes after
            them. If it is None, the error is raised.
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
    yield from _PartitionScan(log, end, request, statistics, scanner, on_loss, start).run(position_hint)
    builder = scanner.rows
    if builder.rows_filled:
        statistics.rows += builder.rows_filled
        yield builder.take()


def scanner_for(
    log: PartitionLog, start: int, end: int, request: ScanRequest, statistics: ScanStatistics, buffers: ScanBuffers
) -> SegmentScanner:
    """Return a scanner with the batch filters of [start, end)."""
    filters = batch_filters(log, start, end, request, statistics.dropped)
    return SegmentScanner(log.topic, log.partition, request, buffers, filters)


@dataclass(slots=True)
class _PartitionScan:
    """Progress of a scan through the segments of a log.

    Attributes:
        offset: Offset from which the scan resumes. All wanted records below it were read.
        fruitless_reads: Consecutive rereads without progress. More than MAX_LISTINGS end the scan with an error.
    """

    log: PartitionLog
    end: int
    request: ScanRequest
    statistics: ScanStatistics
    scanner: SegmentScanner
    on_loss: OnLoss | None
    offset: int
    fruitless_reads: int = 0

    def run(self, position_hint: PositionHint | None) -> Iterator[pa.RecordBatch]:
        """Yield the full Arrow batches of [offset, end). `position_hint` is for the first segment.

        `offset` moves only here and in `_skip_deleted`; within a segment, `ScanState.next_offset` is ahead of it.
        """
        while self.offset < self.end:
            file = self.log.open_segment_at(self.offset)
            if file is None:
                self._skip_deleted(self.end)
                return
            with file:
                if self.offset < file.base_offset:
                    self._skip_deleted(min(file.base_offset, self.end))
                    if self.offset >= self.end:
                        return
                state = ScanState(position=0, next_offset=self.offset)
                segment_changed = yield from self._read_segment(file, state, position_hint)
            position_hint = None
            if state.is_done:
                return
            self.offset = max(self.offset, state.next_offset)
            if segment_changed:
                continue
            if file.next_base_offset is not None:
                self.fruitless_reads = 0
                self.offset = max(self.offset, file.next_base_offset)
            elif self.offset < self.end:
                self._refresh_at_end_of_listing()

    def _skip_deleted(self, until: int) -> None:
        report_loss(self.log, self.offset, until, self.on_loss)
        self.offset = until

    def _read_segment(
        self, file: SegmentFile, state: ScanState, hint: PositionHint | None
    ) -> Generator[pa.RecordBatch, None, bool]:
        """Read a segment from `offset` on, and set `state` to the progress.

        Returns:
            True if the segment was changed or replaced during the read. The log has been listed again; the caller looks
            up the segment of `state.next_offset` anew.
        """
        self.scanner.rows.set_offset_range(self.offset, self.end)
        self.statistics.segments += 1
        try:
            state.position, state.next_offset = _scan_start(file, self.offset, self.request, hint)
            if state.next_offset >= self.end:  # by the time index, no record below `end` is new enough
                state.is_done = True
                return False
            file.expect(state.position, self.end)
            return (yield from self._scan_despite_damage(file, state))
        except FileNotFoundError as error:
            self._note_interrupted_read(state)
            self.log.refresh_after_replacement(file, error, self.fruitless_reads)
            return True
        finally:
            self.statistics.bytes_read += file.bytes_read

    def _scan_despite_damage(self, file: SegmentFile, state: ScanState) -> Generator[pa.RecordBatch, None, bool]:
        """Read a segment from `state` on. Damage is skipped with drop_malformed, and raises its error otherwise.

        Returns:
            True if the segment only looked damaged because it has changed; the log is refreshed then.
        """
        while True:
            error = yield from scan_segment(self.scanner, file, state, self.statistics)
            if error is None:
                return False
            self._note_interrupted_read(state)
            may_have_changed = state.stopped_by is not None and self.fruitless_reads < MAX_LISTINGS
            if may_have_changed and self.log.refresh_and_compare(file):
                return True
            if not self.request.drop_malformed:
                raise error
            self.statistics.dropped.append(error)
            if not _skip_damage(file, state, error):
                return False

    def _note_interrupted_read(self, state: ScanState) -> None:
        """Count a read that a change or damage has stopped, unless it made progress."""
        self.fruitless_reads = self.fruitless_reads + 1 if state.next_offset <= self.offset else 0

    def _refresh_at_end_of_listing(self) -> None:
        """List the log again: its last listed segment ended below `end`, so it was rolled or truncated meanwhile."""
        log = self.log
        log.refresh()
        if log.next_base_offset(log.segment_index(self.offset)) is None and log.log_end_offset <= self.offset:
            self._skip_deleted(self.end)  # truncated
            return
        self.fruitless_reads += 1
        if self.fruitless_reads > MAX_LISTINGS:
            raise CorruptBatch(
                f"the log kept changing: after {MAX_LISTINGS} listings its log end offset is {log.log_end_offset}, but "
                f"the last segment ends at offset {self.offset}",
                topic_partition=log.name,
                hint="read again; if this repeats while nothing writes, check the log with kafkalog-check",
            )


def _scan_start(file: SegmentFile, offset: int, request: ScanRequest, hint: PositionHint | None) -> ScanStart:
    """Return the furthest start by the hint, the offset index and the time index."""
    position = locate(file, offset, hint)
    if request.timestamp_from_ms > NO_TIMESTAMP:
        by_time = locate_timestamp(file, request.timestamp_from_ms)
        if by_time.position > position:
            return ScanStart(by_time.position, max(offset, by_time.next_offset))
    return ScanStart(position, offset)


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
