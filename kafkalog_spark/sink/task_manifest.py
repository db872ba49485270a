"""Results of tasks, which Spark brings to the driver for the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from kafkalog_spark.sink.commit_record import PlannedSegment


@dataclass(frozen=True)
class TaskAttempt:
    """Attempt of one task of a write.

    Attributes:
        task: Spark's partition id. Records of a partition are in the order of the tasks.
        begun_ms: When the write began; the records' timestamp with LogAppendTime.
        query: ID of a streaming query, which survives its restarts; None for a batch.
    """

    job: str
    task: int
    begun_ms: int
    query: str | None = None


@dataclass(frozen=True)
class TaskManifest(WriterCommitMessage):  # type: ignore[misc]
    """Result of one task attempt.

    Attributes:
        segments: One segment for each staged file, in the order of each partition's records.
        partitions: Number of partitions of each topic, as the task assumed it when it chose the records' partitions.
    """

    attempt: TaskAttempt
    segments: tuple[PlannedSegment, ...]
    partitions: Mapping[str, int] = field(default_factory=dict)


def partition_count(partitions: list[int]) -> int:
    """Return the number of partitions of a topic: the highest one in this log directory plus one.

    Lower ones may be in another directory of log.dirs.
    """
    return partitions[-1] + 1
