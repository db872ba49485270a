"""Offset ranges of a read, resolved in opened logs. The rules, which need no I/O, are in `bound_resolution`.

The planner resolves the bounds of the options (`resolve_ranges`), and a task the late-bound sides of its planned range
(`resolve_split`). Both find start and end of a log in the same way (`_open`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.state_files import Checkpoints
from kafkalog_spark.source.bound_resolution import LogBounds, rebind, resolve_bounds
from kafkalog_spark.source.offset_range import OffsetRange
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.read_locations import for_each_location
from kafkalog_spark.source.split import Split
from kafkalog_spark.source.topic_partitions import TopicPartition

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offset range of a partition, and the partition's opened log."""

    range: OffsetRange
    log: PartitionLog

    @property
    def topic_partition(self) -> TopicPartition:
        return self.range.topic_partition


def resolve_ranges(
    options: ReadOptions, locations: Mapping[TopicPartition, PartitionLocation], assigned: Collection[TopicPartition]
) -> list[PartitionRange]:
    """Open the logs at these locations, and resolve the options' bounds in them.

    Args:
        options: Options of the read.
        locations: Locations of the partitions that are read.
        assigned: The partitions that the bounds must name.

    Returns:
        The ranges, sorted by topic and partition.

    Raises:
        OptionError, OffsetOutOfRange, DataLoss: As `resolve_bounds`.
        NotALogDirectory: If a log cannot be read.
        CorruptBatch: If it is uncertain whether a log ends at a position or is damaged there.
    """
    checkpoints = Checkpoints()
    opened = for_each_location(lambda location: _open(location, options, checkpoints=checkpoints), locations.values())
    logs = {tp: opened_log for tp, opened_log in zip(locations, opened, strict=True) if opened_log is not None}
    ranges = resolve_bounds(
        options.start,
        options.end,
        {tp: opened_log.bounds for tp, opened_log in logs.items()},
        assigned=assigned,
        on_no_match=options.on_no_match,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    return [PartitionRange(each, logs[each.topic_partition].log) for each in ranges]


def resolve_split(split: Split, options: ReadOptions) -> PartitionRange | None:
    """Open the log of a split, and resolve the late-bound sides of its range.

    Returns:
        None, after a warning, if the partition was deleted meanwhile and failOnDataLoss is false.

    Raises:
        OffsetOutOfRange, DataLoss: As `rebind`.
        NotALogDirectory: If the log was deleted meanwhile, or cannot be read.
    """
    opened = _open(split.location, options, fixed_end=split.range.fixed_end, known_end=split.known_end)
    if opened is None:
        return None
    bound = rebind(split.range, opened.bounds, fail_on_data_loss=options.fail_on_data_loss)
    return PartitionRange(bound, opened.log)


def bounds_of(log: PartitionLog, log_start: int, log_end: int) -> LogBounds:
    """Return the bounds of a log with these offsets. Timestamps are looked up in the log."""

    def offset_for_timestamp(timestamp: int) -> int | None:
        # Reading records needs the kernels: they are loaded only if a bound is a timestamp.
        from kafkalog_spark.log.read import timestamp_search

        return timestamp_search.offset_for_timestamp(log, timestamp)

    return LogBounds(log_start, log_end, offset_for_timestamp)


def ends_before_last_segment(log: PartitionLog, end: int) -> bool:
    """Return True if `end` is certainly within the log, because the last segment begins at or after it."""
    return bool(log.segments) and end <= log.segments[-1].base_offset


@dataclass(frozen=True, slots=True)
class _OpenedLog:
    log: PartitionLog
    bounds: LogBounds


def _open(
    location: PartitionLocation,
    options: ReadOptions,
    *,
    fixed_end: int | None = None,
    known_end: LogEnd | None = None,
    checkpoints: Checkpoints | None = None,
) -> _OpenedLog | None:
    """Open a log as `mode` requires, and find its bounds.

    Args:
        location: Location of the partition.
        options: Options of the read.
        fixed_end: End of the range; None if it is late-bound. If it is before the last segment, the end of the log is
            not searched for.
        known_end: An earlier end of the log, at which the search for the end begins.
        checkpoints: Checkpoints that were read before.

    Returns:
        None, after a warning, if the partition was deleted meanwhile and failOnDataLoss is false.
    """
    try:
        log = location.open(pass_over_damage=options.passes_over_damage, known_end=known_end, checkpoints=checkpoints)
        if fixed_end is not None and ends_before_last_segment(log, fixed_end):
            end = log.segments[-1].base_offset  # any offset at or above the end of the range suffices
        elif fixed_end is None and options.read_committed:
            from kafkalog_spark.log.read.last_stable_offset import last_stable_offset

            end = last_stable_offset(log)
        else:
            end = log.log_end_offset  # also for a fixed end: an offset that was below the LSO remains below it
        bounds = bounds_of(log, log.log_start_offset, end)
        log.check_not_deleted()
    except NotALogDirectory as gone:
        if options.fail_on_data_loss or location.exists():
            raise
        _log.warning("%s", gone)
        return None
    return _OpenedLog(log, bounds)
