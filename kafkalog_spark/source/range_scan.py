"""Scan of a resolved offset range under the options failOnDataLoss and mode."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalog_spark.errors import DataLoss, KafkalogError
from kafkalog_spark.source.offset_range import OffsetRange

if TYPE_CHECKING:
    from kafkalog_spark.log.decode.scan_buffers import ScanBuffers
    from kafkalog_spark.log.decode.scan_request import ScanRequest
    from kafkalog_spark.log.read.partition_log import PartitionLog
    from kafkalog_spark.log.read.segment_lookup import PositionHint
    from kafkalog_spark.log.read.segment_scan import ScanStatistics

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RangePosition:
    """Position of a range among the ranges of its partition. Damage at the ends of a log is reported only once."""

    is_first: bool
    is_last: bool


def scan_range(
    log: PartitionLog,
    offsets: OffsetRange,
    request: ScanRequest,
    hint: PositionHint | None,
    buffers: ScanBuffers,
    *,
    fail_on_data_loss: bool,
    damage_position: RangePosition | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, and log the damage that mode=DROPMALFORMED has skipped.

    If the range starts at earliest and retention deletes its beginning before the first batch is yielded, the scan
    starts again at the new log start.

    Args:
        log: The partition.
        offsets: The range, with both sides resolved.
        request: Columns and conditions.
        hint: Position of the start.
        buffers: Buffers of the task.
        fail_on_data_loss: Raise DataLoss for deleted records; otherwise log a warning.
        damage_position: Position of the range for mode=PERMISSIVE, which returns damage as rows; None for other modes.

    Raises:
        DataLoss: With `fail_on_data_loss`.
        KafkalogError: As `scan_partition`.
    """
    from kafkalog_spark.log.read.partition_scan import scan_partition
    from kafkalog_spark.log.read.segment_scan import ScanStatistics

    while True:
        statistics = ScanStatistics()
        on_loss = partial(_raise_or_log, log, offsets, statistics, fail_on_data_loss)
        try:
            if damage_position is not None:
                from kafkalog_spark.log.repair.damage_rows import scan_with_damage

                yield from scan_with_damage(
                    log, offsets.start, offsets.end, request.columns, request, is_first=damage_position.is_first,
                    is_last=damage_position.is_last, statistics=statistics, on_loss=on_loss, buffers=buffers,
                )  # fmt: skip
                return
            yield from scan_partition(
                log, offsets.start, offsets.end, request, position_hint=hint, statistics=statistics, on_loss=on_loss,
                buffers=buffers,
            )  # fmt: skip
            break
        except DataLoss:
            if not _start_is_deleted(log, offsets, statistics):
                raise
            offsets = replace(offsets, start=log.log_start_offset)
    for error in statistics.dropped:
        _log.warning("mode=DROPMALFORMED: skipped: %s", error)


def _raise_or_log(
    log: PartitionLog, offsets: OffsetRange, statistics: ScanStatistics, fail_on_data_loss: bool, error: KafkalogError
) -> None:
    """Raise the error for deleted records; log it if failOnDataLoss is false and the scan need not start again."""
    if fail_on_data_loss or _start_is_deleted(log, offsets, statistics):
        raise error.at(hint="failOnDataLoss=false reads what is left")
    _log.warning("%s", error)


def _start_is_deleted(log: PartitionLog, offsets: OffsetRange, statistics: ScanStatistics) -> bool:
    """Return True if retention has deleted the start of a range from earliest before a row was yielded."""
    return offsets.from_earliest and not statistics.rows and log.log_start_offset > offsets.start
