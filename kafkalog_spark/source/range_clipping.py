"""Clipping of a resolved range to the offsets of its log. Records outside of the log are data loss. No I/O.

Rules and messages are those of Spark's Kafka connector (`KafkaSourceRDD.resolveRange`).
"""

from __future__ import annotations

import logging
from dataclasses import replace

from kafkalog_spark.errors import DataLoss, OffsetOutOfRange
from kafkalog_spark.source.data_loss import MAY_BE_LOST
from kafkalog_spark.source.offset_range import OffsetRange
from kafkalog_spark.source.topic_partitions import tp_text

_log = logging.getLogger(__name__)


def clip(offsets: OffsetRange, log_start: int, log_end: int, fail_on_data_loss: bool) -> OffsetRange:
    """Return the part of `offsets` within [log_start, log_end].

    An empty range is returned unchanged, because no record of it is lost (`KafkaOffsetRangeCalculator` drops it).

    Raises:
        DataLoss: If the range is not within the log, with `fail_on_data_loss`.
    """
    lost_before = offsets.start < log_start
    lost_behind = offsets.end > log_end
    if offsets.size <= 0 or not (lost_before or lost_behind):
        return offsets
    # If nothing is lost behind the range, `log_end` may be below the end of the log, so it is not shown.
    held = f"the log holds [{log_start}, {log_end})" if lost_behind else f"the log begins at offset {log_start}"
    reason = (
        f"Could not read records in offset [{offsets.start}, {offsets.end}) for topic partition "
        f"{tp_text(offsets.topic_partition)}: {held}."
    )
    if fail_on_data_loss:
        raise DataLoss(
            MAY_BE_LOST.format("query") + reason,
            topic_partition=tp_text(offsets.topic_partition),
            offset=offsets.start if lost_before else max(offsets.start, log_end),
        )
    _log.warning("%s failOnDataLoss is false: reading what is left.", reason)
    end = min(offsets.end, log_end)
    start = max(offsets.start, log_start)
    if start >= end:  # no offset of the range is in the log
        start = end = min(max(offsets.start, log_start), log_end)
    return replace(offsets, start=start, end=end)


def range_in_log(offsets: OffsetRange, log_start: int, log_end: int, fail_on_data_loss: bool) -> OffsetRange:
    """Return the part of a range that is within [log_start, log_end].

    Raises:
        OffsetOutOfRange: If the range starts beyond its end.
        DataLoss: As `clip`.
    """
    if offsets.start > offsets.end:
        raise OffsetOutOfRange(
            f"The resolved start offset {offsets.start} is greater than the resolved end offset {offsets.end} "
            f"for topic {offsets.topic} partition {offsets.partition}.",
            topic_partition=tp_text(offsets.topic_partition),
            offset=offsets.start,
            hint="check whether the start is beyond the requested end or the end of the log, "
            "and whether the topic was deleted and created again",
        )
    return clip(offsets, log_start, log_end, fail_on_data_loss)
