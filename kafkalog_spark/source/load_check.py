"""Checks of a load by its options and log directories, so that load() reports mistakes and not the first action."""

from __future__ import annotations

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source import pushdown
from kafkalog_spark.source.log_dir_listing import open_log_dirs
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.subscription import assigned_partitions


def check_load(options: ReadOptions) -> None:
    """Check a load by its options and by listing its log directories.

    Raises:
        NotALogDirectory: If a path is not a log directory.
        OptionError: As `check_pushdown` and `open_log_dirs`.
        UnknownPartition: For a missing topic, unless failOnDataLoss=false: a stream may continue after one of its
            topics was deleted.
    """
    check_pushdown(options)
    dirs = open_log_dirs(options)
    if options.fail_on_data_loss:
        assigned_partitions(options.subscription, dirs.locations)


def check_pushdown(options: ReadOptions) -> None:
    """Raise OptionError if pushdown=true could return wrong rows."""
    if options.pushdown == "true" and not pushdown.FILTERS_ARE_PER_SCAN:
        raise OptionError(
            "option 'pushdown' needs Spark 5: Spark 4 uses the filters of one query in later queries of the same load, "
            "which then miss rows (SPARK-58551)",
            hint="leave it out, and narrow the read with assign, startingOffsets, endingOffsets, startingTimestamp and "
            "endingTimestamp",
        )
