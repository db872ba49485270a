"""Task of a batch query. For each split it opens the log, resolves the late-bound sides of the range, and scans it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalog_spark.source.late_binding import rebind
from kafkalog_spark.source.log_bounds import open_log
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.partition_ranges import PartitionRange
from kafkalog_spark.source.range_scan import RangePosition, scan_range
from kafkalog_spark.source.record_projection import plan_projection
from kafkalog_spark.source.resolved_read import ResolvedRead
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.split import Split
from kafkalog_spark.source.task_request import scan_request
from kafkalog_spark.source.task_rows import rows_of_task

if TYPE_CHECKING:
    from kafkalog_spark.log.decode.scan_buffers import ScanBuffers
    from kafkalog_spark.log.decode.scan_request import ScanRequest


def read_batch_task(read: ResolvedRead, row_filter: RowFilter, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch query's task in the schema of the read."""
    projection = plan_projection(read)
    request = scan_request(read.options, row_filter, projection.columns)
    yield from rows_of_task(_scan_splits(splits, read.options, row_filter, request), splits, projection)


def _scan_splits(
    splits: Sequence[Split], options: ReadOptions, row_filter: RowFilter, request: ScanRequest
) -> Generator[pa.RecordBatch, None, None]:
    """Scan all splits of a task with the same buffers."""
    from kafkalog_spark.log.decode.scan_buffers import ScanBuffers  # loads the kernels

    buffers = ScanBuffers()
    for split in splits:
        yield from _scan_split(split, options, row_filter, request, buffers)


def _scan_split(
    split: Split, options: ReadOptions, row_filter: RowFilter, request: ScanRequest, buffers: ScanBuffers
) -> Iterator[pa.RecordBatch]:
    resolved = resolve_split(split, options)
    if resolved is None:
        return
    log, offsets = resolved.log, resolved.range
    if options.tail is not None:
        from kafkalog_spark.log.read.tail import tail_start

        start = tail_start(log, offsets.start, offsets.end, options.tail, request)
        start_is_earliest = offsets.start_is_earliest and start == offsets.start
        offsets = replace(offsets, start=start, start_is_earliest=start_is_earliest)
    # The planner has not narrowed a late-bound end by the row filter.
    start, end = max(offsets.start, row_filter.offset_from), min(offsets.end, row_filter.offset_until)
    offsets = replace(offsets, start=start, end=end)
    position = RangePosition(split.is_first, split.range.end_is_latest) if options.reports_damage else None
    yield from scan_range(
        log,
        offsets,
        request,
        split.hint,
        buffers,
        fail_on_data_loss=options.fail_on_data_loss,
        damage_position=position,
    )


def resolve_split(split: Split, options: ReadOptions) -> PartitionRange | None:
    """Open the log of a split, and resolve the late-bound sides of its range.

    Returns:
        None, after a warning, if the partition was deleted meanwhile and failOnDataLoss is false.

    Raises:
        OffsetOutOfRange, DataLoss: As `rebind`.
        NotALogDirectory: If the log was deleted meanwhile, or cannot be read.
    """
    opened = open_log(split.location, options, fixed_end=split.range.fixed_end, known_end=split.known_end)
    if opened is None:
        return None
    bound = rebind(split.range, opened.bounds, fail_on_data_loss=options.fail_on_data_loss)
    return PartitionRange(bound, opened.log)
