"""Medium of a log directory that is written to: what the commit protocol (commit) asks of a disk and of a bucket."""

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
from kafkalog_spark.sink.commit_plan import EMPTY_END, CommitRecord, NewTopic, PartitionEnd, PlannedSegment
from kafkalog_spark.sink.staging import Stage
from kafkalog_spark.store.interface import Store
from kafkalog_spark.store.storage_options import StorageOptions

_log = logging.getLogger(__name__)

INDEX_SUFFIXES = (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)


class Medium(ABC):
    """Log directory on a disk or in a bucket. Names are paths from the log directory on. All methods raise OSError."""

    root: str
    store: Store
    storage: StorageOptions | None = None

    remote: bool
    """True: nothing is locked, a request given up may still come through, and the store may ignore conditions."""
    commits: str  # prefix of the names of commit records
    join_bytes: int  # staged files up to this size are joined to one segment
    parallel: int  # steps that are taken at once, at most
    word: str  # name of what is not a directory, in messages
    needs: str  # hint of errors: conditions for a writer there

    def step(self, what: str, name: Any) -> None:  # noqa: B027
        """Called before each change, with a word for it and the name or path: tests fail, or end the writer, there."""

    def path(self, name: str = "") -> str:
        return f"{self.root}/{name}" if name else self.root

    def unwritable(self, error: OSError) -> NotALogDirectory:
        return NotALogDirectory(
            f"cannot be written: {error.strerror or error}",
            path=str(error.filename or self.root),
            hint=f"nothing was written; {self.needs}",
        )

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Results of all calls, up to `parallel` at once."""
        if self.parallel == 1 or len(calls) < 2:
            return [call() for call in calls]
        with ThreadPoolExecutor(self.parallel, "sink") as threads:
            return [done.result() for done in [threads.submit(call) for call in calls]]

    # The directory and its jobs.

    def check_target(self) -> None:
        """Raise NotALogDirectory, UnsupportedFormat, CorruptFile unless the directory is a log directory, or empty, or
        missing; on a disk BrokerOwnsDirectory too. Changes nothing."""
        try:
            listing = self.listing()
        except NotADirectoryError:
            raise NotALogDirectory(
                f"is {self.word}, a log directory is written to",
                path=self.root,
                hint="give a path like that in log.dirs",
            ) from None
        if any(names.parse_segment_file(name) is not None for name in listing):
            raise NotALogDirectory(
                "holds segment files: it is the directory of one partition",
                path=self.root,
                hint=f"give its parent {self.root.rpartition('/')[0] or '/'}, and name topic and partition as columns "
                "or options",
            )
        if META_PROPERTIES_FILE in listing:
            read_meta_properties(self.store, self.root)
        if listing and not any(
            name in (META_PROPERTIES_FILE, names.LOCK_FILE)
            or name.startswith(("kafkalog.commits", "kafkalog.sink", "kafkalog.staged"))
            # on a disk, names like broker-0 are looked into, too: the directory may be the parent of log directories
            or (self.store.remote and names.parse_partition_dir(name))
            for name in listing
        ):
            LogDirs.open(self.root, self.storage)  # raises for a directory without anything of Kafka's

    @abstractmethod
    def listing(self) -> list[str]:
        """Names in the log directory; none of a missing one."""

    def locked(self) -> AbstractContextManager[None]:
        """Locks of the directory, where there are any, against brokers and other sinks, which it waits for. Raises
        LogDirLocked when one holds them for too long, BrokerOwnsDirectory."""
        return nullcontext()

    def begin_job(self, job: str, stream: str | None) -> None:  # noqa: B027  where there is nothing to do
        """Make the job known, where that is how a living one is told from a dead one. stream: see staging.Job."""

    @abstractmethod
    def stage(self, job: str) -> Stage:
        """Staging area of a task."""

    @abstractmethod
    def staged(self, job: str) -> list[str]:
        """Names of what the job left."""

    def jobs_of_stream(self, job: str, stream: str | None) -> list[str]:
        """Jobs to be ended after a micro-batch: that of the writer that committed or aborted it, which staged nothing,
        and those of the same stream that no task could report."""
        return []

    def dead_jobs(self) -> list[str]:
        """Jobs that nobody works on any more, as far as one look can tell."""
        return []

    def end_jobs(self, jobs: Iterable[str]) -> None:
        """Remove what the jobs left."""
        for job in jobs:
            self.delete(self.staged(job))

    @abstractmethod
    def sweep(self, job: str) -> None:
        """Remove what the job and dead jobs left."""

    # Commit records.

    @abstractmethod
    def commit_files(self, after: str = "") -> list[str]:
        """Names that begin with `commits`, without that, from `after` on, sorted."""

    @abstractmethod
    def read(self, name: str, most: int) -> bytes:
        """Raises FileNotFoundError."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Put if absent, on disk on return; False when there is one."""

    @abstractmethod
    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """Replace a small file; on disk on return, with `sync`."""

    @abstractmethod
    def delete(self, names: Sequence[str]) -> None:
        """Remove files that may have gone already."""

    def expect_put_if_absent(self) -> None:  # noqa: B027  where there is nothing to do
        """Raise where the store overwrites what `create` must leave."""

    @abstractmethod
    def superseded(self, number: int) -> list[str]:
        """Commit files that may be removed after commit `number`, if they are older."""

    # Segments.

    @abstractmethod
    def partition_dirs(self) -> Iterable[names.PartitionDir]:
        """Partition directories of every kind; none in a missing directory."""

    def topics(self) -> dict[str, list[int]]:
        """{topic: its partitions, sorted}, of live partition directories."""
        topics: dict[str, list[int]] = {}
        for directory in self.partition_dirs():
            if directory.kind is names.DirKind.LIVE:
                topics.setdefault(directory.topic, []).append(directory.partition)
        return {topic: sorted(partitions) for topic, partitions in topics.items()}

    def ends(
        self, keys: Iterable[TopicPartition], existing: Mapping[str, list[int]], newest: CommitRecord
    ) -> dict[TopicPartition, PartitionEnd]:
        """Append position of each partition. newest: the last commit."""
        last = {key: own[-1] for key, own in newest.by_partition().items()}
        checkpoints = Checkpoints()

        def end(topic: str, partition: int) -> PartitionEnd:
            if partition not in existing.get(topic, ()):
                return EMPTY_END
            location = PartitionLocation(topic, partition, self.path(f"{topic}-{partition}"), self.store)
            return self.end_of(location, last.get((topic, partition)), checkpoints)

        keys = list(keys)
        return dict(zip(keys, self.run([partial(end, *key) for key in keys]), strict=True))

    @abstractmethod
    def end_of(
        self, location: PartitionLocation, last: PlannedSegment | None, checkpoints: Checkpoints
    ) -> PartitionEnd:
        """Append position of a partition; on a disk the log is made whole where a crash left it otherwise. last: its
        last segment by the newest commit. Raises CorruptLog (CorruptBatch, UnsupportedFormat) for a log that only a
        broker may repair, NotALogDirectory; the records that were there stay."""

    @abstractmethod
    def prepare(self, record: CommitRecord) -> None:
        """Last step before a record is put: everything it needs is there, and on disk."""

    @abstractmethod
    def remaining(self, record: CommitRecord) -> CommitRecord:
        """Work that a dead writer left of a decided commit, with other offsets where somebody appended meanwhile."""

    def warn_deleted(self, segments: Sequence[PlannedSegment]) -> None:
        """Say that a partition was deleted before these segments of a decided commit came to their places."""
        lost = sum(segment.records for segment in segments)
        _log.warning(
            "%s was deleted: %d records that were committed to it are gone with it", segments[0].directory, lost
        )

    @abstractmethod
    def make_topic(self, topic: NewTopic, filled: Sequence[int]) -> None:
        """Make all its partitions. filled: those that get segments next."""

    @abstractmethod
    def publish_segment(self, segment: PlannedSegment) -> None:
        """Bring a segment to its place: so that a reader meets a whole log at any instant, and doing it again goes on.
        Raises CorruptLog when another segment is there."""

    def sync_published(self, segment: PlannedSegment) -> None:  # noqa: B027  where there is nothing to do
        """Return when the names of a published segment are on disk, so that a later one is never there without it."""

    def in_the_way(self, segment: PlannedSegment, hint: str) -> CorruptLog:
        """Error for a segment of somebody else at the offset of a planned one."""
        return CorruptLog(
            f"there is a segment where offset {segment.base_offset} was to be written",
            topic_partition=segment.directory,
            path=self.path(segment.file(names.LOG_SUFFIX)),
            hint=hint,
        )

    def end_publish(self, record: CommitRecord) -> None:  # noqa: B027  where there is nothing to do
        """After all segments: make sure that they are on disk."""


def check_cleaned(log: PartitionLog, hint: str) -> None:
    """Raise CorruptLog for a log whose cleaning was not finished."""
    for name in log.names:
        if name.endswith((names.SWAP_SUFFIX, names.CLEANED_SUFFIX)) and names.parse_segment_file(name):
            raise CorruptLog(f"{name} is left from a cleaning that was not finished", path=log.directory, hint=hint)
