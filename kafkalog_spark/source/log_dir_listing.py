"""Listing of the log directories of a read, when it is loaded and when it is planned."""

from __future__ import annotations

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.names import is_internal
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.topic_partitions import names_text


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
