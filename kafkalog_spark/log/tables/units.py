"""Divides a table query into units of work: partitions, segments, and files outside of logs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.state_files import Checkpoints
from kafkalog_spark.log.tables.table import TableQuery, TableUnit

_log = logging.getLogger(__name__)


def partitions_of(query: TableQuery, present: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions of a query without a subscription: all of them, or those of the table's internal topic."""
    return [tp for tp in present if query.table.topic in (None, tp[0])]


def warn_of_missing_topic(query: TableQuery, present: Iterable[TopicPartition], paths: Iterable[str]) -> None:
    """Log a warning if the rows of the table come from an internal topic that the log directories do not hold."""
    topic = query.table.topic
    if topic is not None and not any(tp[0] == topic for tp in present):
        _log.warning(
            "table %s is made of topic %s, of which %s holds no partition: "
            "those of a cluster lie in the log directories of all its brokers",
            query.table_name,
            topic,
            ", ".join(paths),
        )


def units_of(
    query: TableQuery,
    locations: Mapping[TopicPartition, PartitionLocation],
    ranges: Mapping[TopicPartition, range] | None = None,
    *,
    is_unnarrowed: bool = True,
) -> list[TableUnit]:
    """Return the units of a query, by partition and offset.

    Args:
        query: The query.
        locations: Partitions of the query.
        ranges: Offsets of each partition; None for all offsets. A partition without a range is left out.
        is_unnarrowed: True if the query is not narrowed to topics. Rows about the log directories themselves are then
            included, if the table has such rows.

    Raises:
        NotALogDirectory: If a partition cannot be read.
    """
    units: list[TableUnit] = []
    checkpoints = Checkpoints()
    if query.table.has_log_dir_rows and is_unnarrowed:
        units.append(TableUnit(None))
    for tp, location in locations.items():
        if ranges is not None and tp not in ranges:
            continue
        offsets = range(MAX_INT64) if ranges is None else ranges[tp]
        log = location.open(pass_over_damage=True, checkpoints=checkpoints)
        if not query.table.has_ranges:
            size = sum(segment_size(log, index) for index in range(len(log.segments)))
            units.append(TableUnit(location, size=size))
            continue
        for index, segment in enumerate(log.segments):
            next_base = log.next_base_offset(index)
            if segment.base_offset < offsets.stop and (next_base is None or next_base > offsets.start):
                size = segment_size(log, index)
                units.append(TableUnit(location, segment.base_offset, offsets.start, offsets.stop, size))
        if query.table.has_left_overs and ranges is None and find_left_overs(log):
            units.append(TableUnit(location))
    return units


def segment_size(log: PartitionLog, index: int) -> int:
    """Return the bytes of a .log file; 0 if it was deleted, which its reader will report."""
    try:
        return log.size_of(index)
    except FileNotFoundError:
        return 0


def find_left_overs(log: PartitionLog) -> dict[str, names.SegmentFileName]:
    """Return the .log files in the directory that are not part of the log, by name."""
    live = {segment.log for segment in log.segments}
    parsed = {name: names.parse_segment_file(name) for name in sorted(log.names) if name not in live}
    return {name: file for name, file in parsed.items() if file is not None and file.suffix == names.LOG_SUFFIX}
