"""Late binding: a task sets the late-bound sides of its range to the present start and end of the log. No I/O.

Rules and messages are those of Spark's Kafka connector (`KafkaSourceRDD.resolveRange`).
"""

from __future__ import annotations

from dataclasses import replace

from kafkalog_spark.source.bound_resolution import LogBounds
from kafkalog_spark.source.offset_range import OffsetRange
from kafkalog_spark.source.range_clipping import range_in_log


def rebind(offsets: OffsetRange, log: LogBounds, *, fail_on_data_loss: bool = True) -> OffsetRange:
    """Return a planned range with its late-bound sides set to the present start and end of the log.

    A range from earliest whose records retention has deleted is empty.

    Raises:
        OffsetOutOfRange: If the log now ends before the start.
        DataLoss: As `clip`.
    """
    start, end = offsets.start, offsets.end
    if offsets.end_is_latest:
        end = log.log_end
    if offsets.start_is_earliest:
        start = min(log.log_start, end)
    elif offsets.from_earliest:
        start = min(max(start, log.log_start), end)
    return range_in_log(replace(offsets, start=start, end=end), log.log_start, log.log_end, fail_on_data_loss)
