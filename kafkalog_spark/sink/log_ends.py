"""Interface for finding the ends of the logs to append to, implemented for a disk and for a bucket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial

from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.state_files import Checkpoints
from kafkalog_spark.sink.commit_record import CommitRecord, PlannedSegment
from kafkalog_spark.sink.log_directory import LogDirectory
from kafkalog_spark.sink.partition_end import EMPTY_END, PartitionEnd


class LogEnds(ABC):
    """Ends of the logs of a log directory. All methods raise OSError."""

    directory: LogDirectory

    def find(
        self, keys: Iterable[TopicPartition], existing: Mapping[str, list[int]], last_record: CommitRecord
    ) -> dict[TopicPartition, PartitionEnd]:
        """Return the append position of each partition.

        Args:
            keys: The partitions.
            existing: Partitions of each existing topic.
            last_record: Record of the last commit.
        """
        last = {key: own[-1] for key, own in last_record.segments_by_partition().items()}
        checkpoints = Checkpoints()

        def end(topic: str, partition: int) -> PartitionEnd:
            if partition not in existing.get(topic, ()):
                return EMPTY_END
            location = PartitionLocation(
                topic, partition, self.directory.path(f"{topic}-{partition}"), self.directory.store
            )
            return self.end_of(location, last.get((topic, partition)), checkpoints)

        keys = list(keys)
        return dict(zip(keys, self.directory.run([partial(end, *key) for key in keys]), strict=True))

    @abstractmethod
    def end_of(
        self, location: PartitionLocation, last: PlannedSegment | None, checkpoints: Checkpoints
    ) -> PartitionEnd:
        """Return the append position of a partition. On a disk, recover its log first.

        Args:
            location: Location of the partition.
            last: The last segment that the last commit wrote to the partition, None if it wrote none.
            checkpoints: Checkpoints that were read before.

        Raises:
            CorruptLog, UnsupportedFormat: If only a broker may repair the log. No record was removed.
            NotALogDirectory: If the partition cannot be read.
        """
