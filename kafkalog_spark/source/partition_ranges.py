"""Ranges of a read in opened logs, resolved on the driver from the bounds of the options."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.state_files import Checkpoints
from kafkalog_spark.source.bound_resolution import resolve_bounds
from kafkalog_spark.source.log_bounds import open_log
from kafkalog_spark.source.offset_range import OffsetRange
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.topic_partitions import TopicPartition
from kafkalog_spark.store.parallel import in_parallel


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
    open_one = partial(open_log, options=options, checkpoints=Checkpoints())
    opened = in_parallel(open_one, locations.values(), lambda location: location.is_remote)
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
