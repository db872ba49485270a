"""Which partitions a load is about, and where each of them is read: options, held against the log directories."""

from __future__ import annotations

from collections.abc import Collection

from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.replicas import chosen_places
from kafkalog_spark.source.offset_range_limit import TopicPartition
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.subscription import assigned_partitions, check_said


def open_log_dirs(options: ReadOptions) -> LogDirs:
    """The log directories, listed. Raises NotALogDirectory; OptionError where the load does not say what it reads."""
    dirs = LogDirs.open(options.paths, options.storage, options.tier)
    if options.table is None:
        check_said(options.subscription, dirs.partitions_only, dirs.places)
    return dirs


def places_to_read(
    options: ReadOptions, dirs: LogDirs, wanted: Collection[TopicPartition]
) -> dict[TopicPartition, PartitionPlace]:
    """Where each of the `wanted` partitions is read, of several copies the one that the option `replicas` means. Raises
    what `chosen_places` raises."""
    if options.replicas == "merge":
        from kafkalog_spark.log.repair.merged_log import merged_places

        return merged_places(dirs.places, dirs.copies, wanted)
    return chosen_places(
        dirs.places, dirs.copies, wanted, options.replicas, pass_over_damage=options.passes_over_damage
    )


def check_load(options: ReadOptions) -> None:
    """What `.load()` finds wrong by listing the log directories: it opens no log.

    Raises NotALogDirectory, OptionError, and UnknownPartition for a topic that is not there; with failOnDataLoss=false
    that is left to the query, since a stream may go on after one of its topics was deleted.
    """
    dirs = open_log_dirs(options)
    if options.fail_on_data_loss:
        assigned_partitions(options.subscription, dirs.places)
