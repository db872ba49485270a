"""Locations of a read: the partitions that it reads, and the directory that it reads each from.

The log directories are listed, the subscription selects the assigned partitions, and one copy of each is chosen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.names import is_internal
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.subscription import assigned_partitions, unmatched_warning
from kafkalog_spark.source.topic_partitions import TopicPartition, names_text
from kafkalog_spark.store.parallel import in_parallel

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadLocations:
    """The partitions that a subscription assigns, and the locations of those that are read.

    A row filter may exclude assigned partitions, which then have no location. The bounds of the read must name them all
    the same.
    """

    assigned: Sequence[TopicPartition]
    locations: Mapping[TopicPartition, PartitionLocation]


def check_load(options: ReadOptions) -> None:
    """Check a load by listing its log directories.

    Raises:
        NotALogDirectory: If a path is not a log directory.
        OptionError: As `open_log_dirs`.
        UnknownPartition: For a missing topic, unless failOnDataLoss=false: a stream may continue after one of its
            topics was deleted.
    """
    dirs = open_log_dirs(options)
    if options.fail_on_data_loss:
        assigned_partitions(options.subscription, dirs.locations)


def open_log_dirs(options: ReadOptions) -> LogDirs:
    """List the log directories of a read.

    Raises:
        NotALogDirectory: If a path is not a log directory.
        OptionError: If the options name no topics.
    """
    dirs = LogDirs.open(options.paths, options.storage, options.tier)
    if options.table is None and not options.subscription.is_given and not dirs.partitions_only:
        topics = sorted(topic for topic in dirs.topics if not is_internal(topic))
        raise OptionError(
            "One of the following options must be specified for Kafka source: subscribe, subscribepattern, assign. "
            "See the docs for more details.",  # the connector's sentence
            hint=f"allTopics=true reads every topic of the log directory: {names_text(topics) or 'none yet'}",
        )
    return dirs


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


def for_each_location(function: Callable[[PartitionLocation], T], locations: Iterable[PartitionLocation]) -> list[T]:
    """Return the results of `function`, called in parallel for locations in object stores."""
    return in_parallel(function, locations, lambda location: any(store.is_remote for store in location.stores))
