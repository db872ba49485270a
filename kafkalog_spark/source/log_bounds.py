"""Opens a partition's log for a read and finds its bounds, the offsets that the read must stay between.

The driver opens the logs to resolve the bounds of the options, and a task opens the log of each split again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.state_files import Checkpoints
from kafkalog_spark.source.bound_resolution import LogBounds
from kafkalog_spark.source.options import ReadOptions

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A log, and its bounds for a read."""

    log: PartitionLog
    bounds: LogBounds


def open_log(
    location: PartitionLocation,
    options: ReadOptions,
    *,
    fixed_end: int | None = None,
    known_end: LogEnd | None = None,
    checkpoints: Checkpoints | None = None,
) -> OpenedLog | None:
    """Open a log as `mode` requires, and find its bounds.

    Args:
        location: Location of the partition.
        options: Options of the read.
        fixed_end: End of the range if it is already known, None if it is late-bound. If the last segment begins after
            it, the end of the log does not matter and is not searched for.
        known_end: An earlier end of the log, at which the search for the end begins.
        checkpoints: Checkpoints that were read before.

    Returns:
        None, after a warning, if the partition was deleted meanwhile and failOnDataLoss is false.
    """
    try:
        log = location.open(pass_over_damage=options.passes_over_damage, known_end=known_end, checkpoints=checkpoints)
        if fixed_end is not None and log.is_before_last_segment(fixed_end):
            end = log.segments[-1].base_offset  # any offset at or above the end of the range suffices
        elif fixed_end is None and options.read_committed:
            from kafkalog_spark.log.read.last_stable_offset import last_stable_offset

            end = last_stable_offset(log)
        else:
            # Also for a fixed end with read_committed: it was at most the LSO, which never falls, when it was resolved.
            end = log.log_end_offset
        bounds = bounds_of(log, log.log_start_offset, end)
        log.check_not_deleted()  # after the bounds, because the files may be removed while these are found
    except NotALogDirectory as error:
        if options.fail_on_data_loss or location.exists():
            raise
        _log.warning("%s", error)
        return None
    return OpenedLog(log, bounds)


def bounds_of(log: PartitionLog, log_start: int, log_end: int) -> LogBounds:
    """Return the bounds of a log with these offsets. Timestamps are looked up in the log."""

    def offset_for_timestamp(timestamp: int) -> int | None:
        # Reading records needs the kernels: they are loaded only if a bound is a timestamp.
        from kafkalog_spark.log.read import timestamp_search

        return timestamp_search.offset_for_timestamp(log, timestamp)

    return LogBounds(log_start, log_end, offset_for_timestamp)
