"""Interface for staging and publishing the segments of a write, implemented for a disk and for a bucket."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from kafkalog_spark.errors import CorruptLog, NotALogDirectory
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.state_files import Checkpoints, read_meta_properties
from kafkalog_spark.sink.commit_plan import EMPTY_END, PartitionEnd
from kafkalog_spark.sink.commit_record import CommitRecord, NewTopic, PlannedSegment
from kafkalog_spark.sink.log_directory import LogDirectory
from kafkalog_spark.sink.stage import Stage

_log = logging.getLogger(__name__)

_FILES_OF_SINK = ("kafkalog.commits", "kafkalog.sink", "kafkalog.staged")  # prefixes
INDEX_SUFFIXES = (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)


class SegmentTarget(ABC):
    """Log directory in which segments are staged and published. All methods raise OSError."""

    directory: LogDirectory
    join_bytes: int  # adjacent staged files up to this size are joined to one segment
    parallel: int  # maximum number of simultaneous steps
    lists_new_topics_whole: bool
    """True if a listing shows all partitions of a topic while another writer creates it."""

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run all calls, up to `parallel` at once, and return their results."""
        if self.parallel == 1 or len(calls) < 2:
            return [call() for call in calls]
        with ThreadPoolExecutor(self.parallel, "sink") as threads:
            return [done.result() for done in [threads.submit(call) for call in calls]]

    def check(self) -> None:
        """Raise an error unless the directory is a log directory, empty or missing. Changes no file.

        Raises:
            NotALogDirectory: If it is a file, the directory of one partition, or has no file of Kafka's.
            UnsupportedFormat, CorruptFile: If its meta.properties cannot be read.
            BrokerOwnsDirectory: If a broker uses it; on a disk only.
        """
        directory = self.directory
        try:
            listing = directory.listing()
        except NotADirectoryError:
            raise NotALogDirectory(
                f"is {directory.entry}, expected a log directory",
                path=directory.root,
                hint="give the path of a directory, as in log.dirs",
            ) from None
        if any(names.parse_segment_file(name) is not None for name in listing):
            raise NotALogDirectory(
                "holds segment files: it is the directory of one partition",
                path=directory.root,
                hint=f"give its parent {directory.root.rpartition('/')[0] or '/'}, and name topic and partition as "
                "columns or options",
            )
        if META_PROPERTIES_FILE in listing:
            read_meta_properties(directory.store, directory.root)
        if listing and not any(self._shows_log_directory(name) for name in listing):
            LogDirs.open(directory.root, directory.storage)  # raises if no file in it is Kafka's

    def _shows_log_directory(self, name: str) -> bool:
        """Return True if only a log directory has an entry of that name."""
        if name in (META_PROPERTIES_FILE, names.LOCK_FILE) or name.startswith(_FILES_OF_SINK):
            return True
        # On a disk a name like broker-0 does not decide: it may be a log directory, and this one its parent.
        return self.directory.store.is_remote and names.parse_partition_dir(name) is not None

    def locked(self) -> AbstractContextManager[None]:
        """Return a context that holds the locks of the directory. A bucket has no locks.

        Raises:
            LogDirLocked: If another sink holds a lock for too long.
            BrokerOwnsDirectory: If a broker holds a lock.
        """
        return nullcontext()

    def begin_job(self, job: str, stream: str | None) -> None:  # noqa: B027
        """Record that the job is open, so that its files do not count as those of a dead job. stream: see jobs.Job."""

    @abstractmethod
    def stage(self, job: str) -> Stage:
        """Return the staging area of a task."""

    @abstractmethod
    def staged(self, job: str) -> list[str]:
        """Return the names of the job's staged files."""

    def jobs_of_stream(self, job: str, stream: str | None) -> list[str]:
        """Return the jobs to end after a micro-batch.

        They are the job of the writer that committed or aborted the micro-batch, which staged no file itself, and jobs
        of the same stream whose tasks did not report to any commit or abort.
        """
        return []

    def dead_jobs(self) -> list[str]:
        """Return the jobs whose driver has certainly ended."""
        return []

    def end_jobs(self, jobs: Iterable[str]) -> None:
        """Remove the jobs' staged files."""
        for job in jobs:
            self.directory.delete(self.staged(job))

    @abstractmethod
    def sweep(self, job: str) -> None:
        """Remove the staged files of the job and of dead jobs."""

    @abstractmethod
    def partition_dirs(self) -> Iterable[names.PartitionDir]:
        """Return the partition directories of every kind (DirKind); none if the log directory is missing."""

    def topics(self) -> dict[str, list[int]]:
        """Return the sorted partitions of each topic, by live partition directories."""
        topics: dict[str, list[int]] = {}
        for directory in self.partition_dirs():
            if directory.kind is names.DirKind.LIVE:
                topics.setdefault(directory.topic, []).append(directory.partition)
        return {topic: sorted(partitions) for topic, partitions in topics.items()}

    def ends(
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
        return dict(zip(keys, self.run([partial(end, *key) for key in keys]), strict=True))

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

    @abstractmethod
    def prepare(self, record: CommitRecord) -> None:
        """Ensure, before a record is put, that the staged files it names are complete and on disk."""

    @abstractmethod
    def remaining(self, record: CommitRecord) -> CommitRecord:
        """Return the unpublished rest of a commit whose writer died.

        Segments have new offsets in partitions to which another writer has appended since.
        """

    def warn_deleted(self, segments: Sequence[PlannedSegment]) -> None:
        """Log that a partition was deleted before these segments of a commit were published."""
        lost = sum(segment.records for segment in segments)
        _log.warning("%s was deleted: %d records that were committed to it are lost", segments[0].directory, lost)

    @abstractmethod
    def make_topic(self, topic: NewTopic, filled: Sequence[int]) -> None:
        """Make all partitions of a topic.

        Args:
            topic: The topic.
            filled: Partitions to which segments of the same commit are published next.
        """

    @abstractmethod
    def publish_segment(self, segment: PlannedSegment) -> None:
        """Make a segment part of its log. Idempotent; a reader sees a valid log at every instant.

        Raises:
            CorruptLog: If another segment has its base offset.
        """

    def sync_published(self, segment: PlannedSegment) -> None:  # noqa: B027
        """Wait until the names of a published segment are on disk, so that no later one survives a crash without it."""

    def conflict(self, segment: PlannedSegment, hint: str) -> CorruptLog:
        """Return the error for a segment of another program at the base offset of a planned segment."""
        return CorruptLog(
            f"another program has written a segment at offset {segment.base_offset}, where the sink was to write",
            topic_partition=segment.directory,
            path=self.directory.path(segment.file(names.LOG_SUFFIX)),
            hint=hint,
        )

    def end_publish(self, record: CommitRecord) -> None:  # noqa: B027
        """Flush all published segments to disk."""


def check_cleaned(log: PartitionLog, hint: str) -> None:
    """Raise CorruptLog if a cleaning of the log was interrupted."""
    for name in log.names:
        if name.endswith((names.SWAP_SUFFIX, names.CLEANED_SUFFIX)) and names.parse_segment_file(name):
            raise CorruptLog(f"{name} is left over from an interrupted cleaning", path=log.directory, hint=hint)
