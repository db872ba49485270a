"""Resolution of the bounds of a read to offset ranges, on the driver. No I/O: `log_bounds` opens the logs.

Rules and messages are those of Spark's Kafka connector
(`KafkaOffsetReaderAdmin.getOffsetRangesFromUnresolvedOffsets`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.bounds import EARLIEST, LATEST, Bound
from kafkalog_spark.source.offset_range import OffsetRange
from kafkalog_spark.source.options import NoMatch
from kafkalog_spark.source.range_clipping import range_in_log
from kafkalog_spark.source.topic_partitions import TopicPartition, names_text, set_text, tp_text

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Offsets of a log against which the bounds of a read are resolved.

    Attributes:
        log_start: The log start offset.
        log_end: Offset at which a reader stops: the log end offset; with read_committed the last stable offset. If the
            end of the read is fixed, it may be any offset of the log at or above that end.
        offset_for_timestamp: Returns the first offset whose record has a timestamp >= the given one (ms), or None.
    """

    log_start: int
    log_end: int
    offset_for_timestamp: Callable[[int], int | None]


def resolve_bounds(
    start: Bound,
    end: Bound,
    logs: Mapping[TopicPartition, LogBounds],
    *,
    assigned: Collection[TopicPartition] | None = None,
    on_no_match: NoMatch = "error",
    fail_on_data_loss: bool = True,
) -> list[OffsetRange]:
    """Return a range for every partition of `logs`, sorted by topic and partition. Ranges may be empty.

    Timestamps are looked up only here, as in the connector. An end timestamp later than every record means the present
    end of the log.

    Args:
        start: Start of the read.
        end: End of the read.
        logs: Bounds of the log of each partition that is read.
        assigned: The partitions that the bounds must name; by default those of `logs`.
        on_no_match: Meaning of a start timestamp later than every record: an error, or the end of the log.
        fail_on_data_loss: Raise DataLoss if the log does not hold the range.

    Raises:
        OptionError: If the bounds do not name the assigned partitions, or a timestamp has no match.
        OffsetOutOfRange: If a start is beyond its end.
        DataLoss: As `clip`.
    """
    assigned = logs.keys() if assigned is None else assigned
    starts = _by_partition(start, assigned, "start")
    ends = _by_partition(end, assigned, "end")
    ranges = []
    for tp in sorted(logs):
        log = logs[tp]
        start_offset = _resolve(starts[tp], start.by_time, log)
        if start_offset is None:
            if on_no_match == "error":
                raise OptionError(
                    f"No offset matched from request of topic-partition {tp_text(tp)} and timestamp {starts[tp]}.",
                    topic_partition=tp_text(tp),
                    hint="startingOffsetsByTimestampStrategy=latest reads nothing from such a partition",
                )
            start_offset = log.log_end
        end_offset = _resolve(ends[tp], end.by_time, log)
        if end_offset is None:
            end_offset = log.log_end
        # A side that is given by timestamp is never late-bound, even if no record matches: records beyond the requested
        # end may be appended later.
        is_earliest = starts[tp] == EARLIEST and not start.by_time
        is_latest = ends[tp] == LATEST and not end.by_time
        offsets = OffsetRange(*tp, start_offset, end_offset, is_earliest, is_latest, from_earliest=is_earliest)
        ranges.append(range_in_log(offsets, log.log_start, log.log_end, fail_on_data_loss))
    return ranges


def _by_partition(bound: Bound, assigned: Collection[TopicPartition], side: str) -> Mapping[TopicPartition, int]:
    """Return the offset (perhaps LATEST or EARLIEST) or timestamp that a bound gives each assigned partition."""
    numbers, unassigned_topics = bound.by_partition(assigned)
    if numbers.keys() == set(assigned) and not unassigned_topics:
        return numbers
    if bound.by_time:
        sentence = (
            f"Partitions specified for Kafka timestamp based {side} offsets don't match what are assigned. Maybe topic "
            "partitions are created or deleted while the query is running, or you didn't specify all the partitions."
        )
    else:
        sentence = (
            f"Partitions specified for Kafka {side} offsets don't match what are assigned. Maybe topic partitions are "
            "created or deleted while the query is running. Use -1 for latest, -2 for earliest."
        )
    unspecified, unassigned = set(assigned) - numbers.keys(), numbers.keys() - set(assigned)
    hints = []
    if unspecified:
        hints.append(f"not specified: {set_text(unspecified)}")
    if unassigned or unassigned_topics:
        names = [*sorted(unassigned_topics), *map(tp_text, sorted(unassigned))]
        hints.append(f"not in the log directory, or not subscribed to: {names_text(names)}")
    raise OptionError(
        f"{sentence} Specified: {set_text(numbers)} Assigned: {set_text(assigned)}", hint="; ".join(hints)
    )


def _resolve(number: int, by_time: bool, log: LogBounds) -> int | None:
    """Return the offset for a number of a bound; None for a timestamp without a match."""
    if number == EARLIEST:
        return log.log_start
    if number == LATEST:
        return log.log_end
    if not by_time:
        return number
    offset = log.offset_for_timestamp(number)
    # Kafka returns no offset that the reader may not see (`Partition.fetchOffsetForTimestamp`).
    if offset is None or offset >= log.log_end:
        return None
    return max(offset, log.log_start)
