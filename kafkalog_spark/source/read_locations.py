"""Locations of a read: the partitions that it reads, and the directory that it reads each from.

The subscription selects the assigned partitions in the listed log directories, and one copy of each is chosen.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.subscription import assigned_partitions, unmatched_warning
from kafkalog_spark.source.topic_partitions import TopicPartition

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadLocations:
    """The partitions that a subscription assigns, and the locations of those that are read.

    A row filter may exclude assigned partitions, which then have no location. The bounds of the read must name them all
    the same.
    """

    assigned: Sequence[TopicPartition]
    locations: Mapping[TopicPartition, PartitionLocation]


def read_locations(options: ReadOptions, dirs: LogDirs, row_filter: RowFilter) -> ReadLocations:
    """Return the locations of a batch read of records.

    Raises:
        UnknownPartition: For a topic that the options name and that does not exist.
        NotALogDirectory: As `LogDirs.choose_locations`.
    """
    assigned = assigned_partitions(options.subscription, dirs.locations)
    if text := unmatched_warning(options.subscription, dirs.locations, dirs.paths):
        _log.warning("%s", text)
    # The log of a partition without wanted rows need not be opened.
    wanted = [tp for tp in assigned if not row_filter.keeps_nothing and row_filter.accepts_partition(*tp)]
    chosen = dirs.choose_locations(wanted, options.replicas, pass_over_damage=options.passes_over_damage)
    return ReadLocations(assigned, chosen)
