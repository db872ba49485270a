"""Scans a range of offsets with mode=PERMISSIVE: yields rows of records, and a row for each damaged stretch.

| column          | Arrow type | value in the row of a damaged stretch; null in the row of a record                 |
|-----------------|------------|------------------------------------------------------------------------------------|
| _error          | string     | what is wrong, with the expected and the found value                               |
| _file           | string     | path of the .log file                                                              |
| _position       | int64      | first byte                                                                         |
| _length         | int64      | number of bytes                                                                    |
| _first_offset   | int64      | first missing offset: the one after the good batch before the stretch              |
| _next_offset    | int64      | first offset after the stretch that is not missing; null if the log ends in damage |

The row of a damaged stretch has the `topic` and `partition` of the log, and nulls in all other columns. The order of
rows is not defined.

Each segment is judged as a whole, as in a repair, before its good batches are read.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from kafkalog_spark.errors import KafkalogError, in_utf8
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, DAMAGE_COLUMN_TYPES
from kafkalog_spark.log.decode.scan_buffers import ScanBuffers
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.batch_search import find_next_batch
from kafkalog_spark.log.read.deleted_records import report_loss
from kafkalog_spark.log.read.partition_log import MAX_LISTINGS, PartitionLog
from kafkalog_spark.log.read.partition_scan import scanner_for
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import locate
from kafkalog_spark.log.read.segment_scan import ScanState, ScanStatistics, SegmentScanner, scan_segment
from kafkalog_spark.log.repair.judged_segment import (
    DamagedStretch,
    GoodRun,
    JudgedSegment,
    judge_segment,
)


def with_damage_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return `columns`, with the damage columns appended unless some of these are already included."""
    return columns if DAMAGE_COLUMN_TYPES.keys() & set(columns) else (*columns, *DAMAGE_COLUMN_TYPES)


def scan_with_damage(
    log: PartitionLog,
    start: int,
    end: int,
    columns: tuple[str, ...],
    request: ScanRequest,
    *,
    is_first: bool = True,
    is_last: bool = False,
    statistics: ScanStatistics | None = None,
    on_loss: Callable[[KafkalogError], None] | None = None,
    buffers: ScanBuffers | None = None,
) -> Iterator[pa.RecordBatch]:
    """Scan the offsets [start, end) of a log, and yield records and damaged stretches as rows.

    If several ranges of a log are scanned, a stretch that is in more than one of them is reported by the scan of the
    range with its first missing offset. Damage after the last good batch is reported by the scan of the last range, and
    by one that reaches the log end offset.

    Args:
        log: The partition, opened with pass_over_damage.
        start: First offset.
        end: Offset after the last one.
        columns: Requested columns, of records and of damage.
        request: Filters and options of the scan. Its columns are ignored.
        is_first: True if no lower range of the log is scanned.
        is_last: True if no higher range of the log is scanned.
        statistics: Counters to add to.
        on_loss: Called with the error for records that have gone; if it is None, the error is raised.
        buffers: Buffers of a finished scan, to be used again.

    Raises:
        DataLoss: If records have gone, and `on_loss` is None.
        NotALogDirectory: If a file cannot be read.
    """
    report_until = MAX_INT64 if is_last or _reaches_log_end(log, end) else end
    if start >= report_until:
        return
    record_columns = tuple(name for name in columns if name in COLUMN_TYPES)
    request = replace(request, columns=record_columns, drop_malformed=True)
    statistics = statistics if statistics is not None else ScanStatistics()
    buffers = buffers or ScanBuffers()
    scanner = scanner_for(log, start, end, request, statistics, buffers)
    rows = scanner.rows
    schema = pa.schema([(name, (COLUMN_TYPES | DAMAGE_COLUMN_TYPES)[name]) for name in columns])
    offset, tries = start, 0
    while offset < report_until:
        file = log.open_segment_at(offset)
        if file is None:
            if offset < end:
                report_loss(log, offset, end, on_loss)
            break
        with file:
            if offset < file.base_offset:
                if offset < end:
                    report_loss(log, offset, min(file.base_offset, end), on_loss)
                offset = file.base_offset
                if offset >= report_until:
                    break
            try:
                judged = judge_segment(file, log.recovery_point)
            except FileNotFoundError as error:
                tries += 1
                log.refresh_after_replacement(file, error, tries)
                continue
            if judged.stretches and tries < MAX_LISTINGS and log.refresh_and_compare(file):
                tries += 1
                continue
            statistics.segments += 1
            rows.set_offset_range(offset, end)
            for run in judged.runs:
                for batch in _read_run(scanner, file, run, offset, end, statistics, judged):
                    yield _with_null_damage(batch, schema)
            statistics.bytes_read += file.bytes_read
            damage_rows = [
                _damage_row(log, stretch)
                for stretch in judged.stretches
                if _is_in_range(stretch, start, end, report_until, is_first)
            ]
            if damage_rows:
                yield pa.RecordBatch.from_pylist(damage_rows, schema)
        tries = 0
        if file.next_base_offset is None:
            break
        offset = max(offset, file.next_base_offset)
    if rows.rows_filled:
        statistics.rows += rows.rows_filled
        yield _with_null_damage(rows.take(), schema)


def _reaches_log_end(log: PartitionLog, end: int) -> bool:
    """Return True if `end` is at or after the log end offset, which is only searched for if `end` is that high."""
    if log.segments and end < log.segments[-1].base_offset:
        return False
    return end >= log.log_end_offset


def _read_run(
    scanner: SegmentScanner,
    file: SegmentFile,
    run: GoodRun,
    start: int,
    end: int,
    statistics: ScanStatistics,
    judged: JudgedSegment,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a run with offsets in [start, end). Batches that cannot be decoded are added to `judged`."""
    if run.last_offset < start or run.base_offset >= end:
        return
    position = run.position
    if start > run.base_offset:
        located = locate(file, start)
        if run.position <= located < run.end:
            position = located
    state = ScanState(position, start)
    part = file.up_to(run.end)
    while True:
        error = yield from scan_segment(scanner, part, state, statistics)
        if error is None:
            return
        statistics.dropped.append(error)
        if not _skip_undecodable_batch(part, state, error, judged):
            return


def _skip_undecodable_batch(part: SegmentFile, state: ScanState, error: KafkalogError, judged: JudgedSegment) -> bool:
    """Add a batch with a valid CRC whose records cannot be decoded to `judged`, and move `state` past it.

    Args:
        part: The file up to the end of the run that is read.
        state: State of the scan, which stopped at `error`.
        error: What is wrong. Records before `error.offset` were read.
        judged: Gets the batch as a damaged stretch.

    Returns:
        False if the batch is the last one of the run.
    """
    position = state.position if error.position is None else error.position
    header = part.header_at(position)
    assert header is not None  # its CRC is valid
    next_batch = find_next_batch(part, position, header.last_offset + 1)
    next_offset = header.last_offset + 1 if next_batch is None else next_batch.base_offset
    first_offset = header.base_offset if error.offset is None else error.offset
    insort(
        judged.stretches,
        DamagedStretch(position, header.size, error.what, part.path, first_offset, next_offset),
        key=lambda stretch: stretch.position,
    )
    if next_batch is None:
        return False
    state.stopped_by = None
    state.position, state.lowest_offset = next_batch.position, next_batch.base_offset
    return True


def _is_in_range(stretch: DamagedStretch, start: int, end: int, report_until: int, is_first: bool) -> bool:
    """Return True if the scan of the range [start, end) reports a stretch.

    Stretches in [end, report_until) are reported, too.
    """
    first, following = stretch.first_offset, stretch.next_offset
    if first < start:
        return is_first and (following is None or following > start)
    if first < report_until:
        return True
    # The next range begins in the next file, so this one reports a stretch at the end of the file.
    return first == end and stretch.reaches_end_of_file and (following is None or following <= end)


def _damage_row(log: PartitionLog, stretch: DamagedStretch) -> dict[str, object]:
    return {
        "topic": log.topic,
        "partition": log.partition,
        "_error": stretch.error,
        "_file": in_utf8(stretch.path),
        "_position": stretch.position,
        "_length": stretch.size,
        "_first_offset": stretch.first_offset,
        "_next_offset": stretch.next_offset,
    }


def _with_null_damage(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of records with null damage columns added."""
    arrays = [
        pa.nulls(batch.num_rows, field.type) if field.name in DAMAGE_COLUMN_TYPES else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
