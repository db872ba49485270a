"""mode=PERMISSIVE: scan a range of offsets, with a row for each damaged stretch in it.

| column          | Arrow type | in the row of a damaged stretch, null in that of a record                          |
|-----------------|------------|------------------------------------------------------------------------------------|
| _error          | string     | what is wrong, the expected and the found value                                    |
| _file           | string     | path of the .log                                                                   |
| _position       | int64      | first byte                                                                         |
| _length         | int64      | number of bytes                                                                    |
| _first_offset   | int64      | first missing offset: that after the good batch before it                          |
| _next_offset    | int64      | first offset after it that is not missing; null if the log ends in damage          |

`topic` and `partition` are those of the log; every other column is null in such a row. Rows are in no order.

Each segment is judged as a whole, as by a repair, before its good batches are read.
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
from kafkalog_spark.log.read.batch_search import find_batch_behind
from kafkalog_spark.log.read.partition_log import LISTINGS, PartitionLog
from kafkalog_spark.log.read.partition_scan import lose, scanner_for
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import locate
from kafkalog_spark.log.read.segment_scan import ScanState, ScanStatistics, SegmentScanner, scan_segment
from kafkalog_spark.log.repair.judged_segment import (
    DamagedStretch,
    JudgedSegment,
    Run,
    judge_segment,
)


def with_damage_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns, with the damage columns appended unless some of them are already included."""
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

    A stretch that several ranges touch is reported by the range with its first missing offset. Damage after the last
    good batch is reported by the last range, and by a range that reaches the log end offset.

    Args:
        log: Opened with pass_over_damage.
        start: First offset.
        end: Offset after the last one.
        columns: Requested columns, of records and of damage.
        request: Filters and options of the scan.
        is_first: No lower range of the log is read.
        is_last: No higher range of the log is read.
        statistics: Updated, if given.
        on_loss: Called with the error if offsets are missing; without it, the error is raised.
        buffers: Reused, if given.

    Raises:
        DataLoss: If offsets are missing, and `on_loss` is None.
        NotALogDirectory: If a file cannot be read.
    """
    before_last = log.segments and end < log.segments[-1].base_offset  # then the log end offset is not needed
    until = MAX_INT64 if is_last or (not before_last and end >= log.log_end_offset) else end
    if start >= until:
        return
    of_records = tuple(name for name in columns if name in COLUMN_TYPES)
    request = replace(request, columns=of_records, drop_malformed=True)
    statistics = statistics if statistics is not None else ScanStatistics()
    buffers = buffers or ScanBuffers()
    scanner = scanner_for(log, start, end, request, statistics, buffers)
    rows = scanner.rows
    schema = pa.schema([(name, (COLUMN_TYPES | DAMAGE_COLUMN_TYPES)[name]) for name in columns])
    topic_partition = {"topic": log.topic, "partition": log.partition}
    offset, tries = start, 0
    while offset < until:
        file = log.open_segment_at(offset)
        if file is None:
            if offset < end:
                lose(log, offset, end, on_loss)
            break
        with file:
            if offset < file.base_offset:
                if offset < end:
                    lose(log, offset, min(file.base_offset, end), on_loss)
                offset = file.base_offset
                if offset >= until:
                    break
            try:
                judged = judge_segment(file, log.recovery_point)
            except FileNotFoundError as gone:
                tries += 1
                log.list_again(file, gone, tries)
                continue
            if judged.stretches and tries < LISTINGS and log.has_changed(file):
                tries += 1
                continue
            statistics.segments += 1
            rows.set_offset_range(offset, end)
            for run in judged.runs:
                for batch in _read_run(scanner, file, run, offset, end, statistics, judged):
                    yield _widened(batch, schema)
            statistics.bytes_read += file.bytes_read
            in_range = [found for found in judged.stretches if _is_in_range(found, start, end, until, is_first)]
            if in_range:
                values = (
                    (of.error, in_utf8(of.path), of.position, of.size, of.first_offset, of.next_offset)
                    for of in in_range
                )
                found = [topic_partition | dict(zip(DAMAGE_COLUMN_TYPES, row, strict=True)) for row in values]
                yield pa.RecordBatch.from_pylist(found, schema)
        tries = 0
        if file.next_base_offset is None:
            break
        offset = max(offset, file.next_base_offset)
    if rows.rows_filled:
        statistics.rows += rows.rows_filled
        yield _widened(rows.take(), schema)


def _read_run(
    scanner: SegmentScanner,
    file: SegmentFile,
    run: Run,
    start: int,
    end: int,
    statistics: ScanStatistics,
    judged: JudgedSegment,
) -> Iterator[pa.RecordBatch]:
    if run.last_offset < start or run.base_offset >= end:
        return
    located = locate(file, start) if start > run.base_offset else 0
    state = ScanState(located if run.position <= located < run.end else run.position, start)
    part = file.up_to(run.end)
    while True:
        error = yield from scan_segment(scanner, part, state, statistics)
        if error is None:
            return
        statistics.dropped.append(error)
        if not _pass_over_records(part, state, error, judged):
            return


def _pass_over_records(part: SegmentFile, state: ScanState, error: KafkalogError, judged: JudgedSegment) -> bool:
    """Record a batch with a valid CRC, whose records cannot be decoded, as a damaged stretch. Move `state` past it.

    Args:
        part: The file up to the end of the run that is read.
        state: State of the scan, which stopped at `error`.
        error: What is wrong. Records before `error.offset` were read.
        judged: Gets the stretch.

    Returns:
        False at the end of the run.
    """
    damaged = state.position if error.position is None else error.position
    header = part.header_at(damaged)
    assert header is not None  # its CRC is valid
    following = find_batch_behind(part, damaged, header.last_offset + 1)
    next_offset = header.last_offset + 1 if following is None else following.base_offset
    first_offset = header.base_offset if error.offset is None else error.offset
    insort(
        judged.stretches,
        DamagedStretch(damaged, header.size, error.what, part.path, first_offset, next_offset),
        key=lambda stretch: stretch.position,
    )
    if following is None:
        return False
    state.stopped_by = None
    state.position, state.lowest_offset = following.position, following.base_offset
    return True


def _is_in_range(stretch: DamagedStretch, start: int, end: int, until: int, is_first: bool) -> bool:
    """True if the range [start, end) reports a stretch. Stretches in [end, until) belong to the range as well."""
    first, following = stretch.first_offset, stretch.next_offset
    if first < start:
        return is_first and (following is None or following > start)
    # The next range begins in the next file, so this one reports a stretch at the end of the file.
    return first < until or (first == end and stretch.reaches_end_of_file and (following is None or following <= end))


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of records with nulls in the damage columns."""
    arrays = [
        pa.nulls(batch.num_rows, field.type) if field.name in DAMAGE_COLUMN_TYPES else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
