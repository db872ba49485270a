"""Log directory of a write: the parts that its phases use, implemented for a disk or for a bucket."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from kafkalog_spark.sink.commit_log import CommitLog
from kafkalog_spark.sink.directory_locks import DirectoryLocks
from kafkalog_spark.sink.log_directory import LogDirectory
from kafkalog_spark.sink.log_ends import LogEnds
from kafkalog_spark.sink.segment_publisher import SegmentPublisher
from kafkalog_spark.sink.stage import Stage
from kafkalog_spark.sink.staged_jobs import StagedJobs
from kafkalog_spark.sink.staged_segments import StagedSegments


@dataclass(frozen=True)
class WriteTarget:
    """A log directory on a disk or in a bucket. The parts are in the order in which a write uses them.

    Attributes:
        directory: Reads and changes of its files.
        locks: Its locks; None in a bucket, which has none.
        log: Its commit log.
        jobs: The open jobs.
        new_stage: LocalStage or BucketStage; makes the staging area of a task from `directory` and the ID of the job.
        join_bytes: Adjacent staged files up to this size are joined to one segment.
        log_ends: Finds the ends of the logs.
        staged: Prepares the staged segments of a commit.
        publisher: Makes them parts of their logs.
    """

    directory: LogDirectory
    locks: DirectoryLocks | None
    log: CommitLog
    jobs: StagedJobs
    new_stage: Callable[[Any, str], Stage]
    join_bytes: int
    log_ends: LogEnds
    staged: StagedSegments
    publisher: SegmentPublisher

    def locked(self) -> AbstractContextManager[None]:
        """Return a context that holds the locks of the directory. A bucket has no locks.

        Raises:
            LogDirLocked: If another sink holds a lock for too long.
            BrokerOwnsDirectory: If a broker holds a lock.
        """
        return nullcontext() if self.locks is None else self.locks.held()
