"""Ends of logs in a bucket.

Objects cannot be truncated, so a write to a log that ends with a torn batch is refused.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptLog, KafkalogError
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.state_files import Checkpoints, leader_epochs_or_empty
from kafkalog_spark.sink.bucket_directory import BucketDirectory
from kafkalog_spark.sink.commit_record import PlannedSegment
from kafkalog_spark.sink.interrupted_cleaning import check_cleaned
from kafkalog_spark.sink.log_ends import LogEnds
from kafkalog_spark.sink.partition_end import PartitionEnd, partition_end

_REPAIR = "copy the partition's directory to a disk, let a broker load it once, and put it back; nothing was written"


@dataclass(frozen=True)
class BucketLogEnds(LogEnds):
    """Ends of the logs of a log directory in a bucket."""

    directory: BucketDirectory

    def end_of(
        self, location: PartitionLocation, last: PlannedSegment | None, checkpoints: Checkpoints
    ) -> PartitionEnd:
        """Return the end of a partition.

        One LIST request suffices if the last segment is still `last`. Otherwise the end is found as readers do.
        """
        log = location.open_without_checkpoints()
        if (
            last is not None
            and log.segments
            and log.segments[-1].base_offset == last.base_offset
            and log.size_of(len(log.segments) - 1) == last.size
        ):
            return PartitionEnd(last.next_offset, last.leader_epoch, None)
        try:
            check_cleaned(log, _REPAIR)
            log = location.open(checkpoints=checkpoints)
            end = log.log_end
            size = log.size_of(len(log.segments) - 1) if log.segments else 0
            if size != end.position:
                raise CorruptLog(
                    f"the last segment has {size - end.position} bytes after its last whole batch, at byte "
                    f"{end.position}, as a crash or a copy of a running broker's file leaves them; an object cannot be "
                    "truncated",
                    path=posixpath.join(location.directory, log.segments[-1].log),
                    position=end.position,
                    offset=end.offset,
                )
        except KafkalogError as error:
            error.hint = error.hint or _REPAIR
            raise error.at(topic_partition=f"{location.topic}-{location.partition}") from None
        replaces_empty = bool(log.segments) and size == 0 and log.segments[-1].base_offset == end.offset
        epochs = leader_epochs_or_empty(location.store, location.directory)
        return partition_end(end.offset, epochs, replaces_empty=replaces_empty)
