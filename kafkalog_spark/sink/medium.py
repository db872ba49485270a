"""Medium of a log directory that is written to: what the commit protocol (commit) asks of a disk and of a bucket; and
the append position of a partition in each.

A directory that a broker stopped cleanly, or a sink wrote, needs no change. What a crash left is recovered as a broker
would: segments after the recovery point are checked, a torn tail is cut off, the indexes of the last segment are made
again. Damage that is no torn tail is refused: a broker would cut off everything after it. In a bucket objects cannot be
cut: a log that has to be is refused.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from kafkalog_spark.errors import CorruptLog, KafkalogError, NotALogDirectory
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import descriptor
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, TopicPartition, read_leader_epochs
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.format.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from kafkalog_spark.format.offset_index import load_offset_index
from kafkalog_spark.format.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from kafkalog_spark.format.time_index import load_time_index
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import (
    Checkpoints,
    PartitionLocation,
    PartitionLog,
    leader_epochs,
    read_meta_properties,
)
from kafkalog_spark.log.write.segment_recovery import OffsetOverflow, ordered_windows, recover_segment
from kafkalog_spark.sink.commit_plan import CommitRecord, NewTopic, PartitionEnd, PlannedSegment
from kafkalog_spark.sink.staging import Stage
from kafkalog_spark.store.interface import Store
from kafkalog_spark.store.storage_options import StorageOptions

_log = logging.getLogger(__name__)

INDEX_SUFFIXES = (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)


class Medium(ABC):
    """Log directory that is written to: what the commit protocol does on a disk (medium_local) and in a bucket
    (medium_bucket). Names are paths from the log directory on. All methods raise OSError."""

    root: str
    store: Store
    storage: StorageOptions | None = None

    remote: bool
    """True where nothing is locked, a request may come through after its answer was given up, and the store may ignore
    conditions."""
    commits: str  # prefix of the names of commit records
    join_bytes: int  # staged files up to this size are joined to one segment
    parallel: int  # steps that are taken at once, at most
    word: str  # name of what is not a directory, in messages
    needs: str  # hint of errors: conditions for a writer there

    def path(self, name: str = "") -> str:
        """Full path, for messages."""
        return f"{self.root}/{name}" if name else self.root

    def unwritable(self, error: OSError) -> NotALogDirectory:
        """Error to raise for an OSError."""
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
        """Raise unless the directory is a log directory, or empty, or missing. Changes nothing.

        NotALogDirectory, UnsupportedFormat, CorruptFile; BrokerOwnsDirectory on a disk.
        """
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
            or names.parse_partition_dir(name)
            for name in listing
        ):
            LogDirs.open(self.root, self.storage)  # raises for a directory without anything of Kafka's

    @abstractmethod
    def listing(self) -> list[str]:
        """Names in the log directory; none of a missing one."""

    def locked(self) -> AbstractContextManager[None]:
        """Locks of the directory against brokers and other sinks, where there are any. Raises LogDirLocked,
        BrokerOwnsDirectory."""
        return nullcontext()

    def begin_job(self, job: str, stream: str | None) -> None:  # noqa: B027  where there is nothing to do
        """Make the job known, where that is how a living one is told from a dead one. stream: see staging.Job."""

    @abstractmethod
    def stage(self, job: str) -> Stage:
        """Staging area of a task of the job."""

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
        """Names that begin with `commits`, without that, from `after` on."""

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
        """Append position of each partition, recovered first where the medium can. newest: the last commit."""
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
        """Append position of a partition. last: its last segment by the newest commit."""

    @abstractmethod
    def prepare(self, record: CommitRecord) -> None:
        """Last step before a record is put: everything it needs is there, and on disk."""

    @abstractmethod
    def remaining(self, record: CommitRecord) -> CommitRecord:
        """Work of a decided commit that a dead writer left, ready to be published; with other offsets where somebody
        appended meanwhile."""

    def warn_deleted(self, segments: Sequence[PlannedSegment]) -> None:
        """Say that a partition was deleted before these segments of a decided commit came to their places."""
        lost = sum(segment.records for segment in segments)
        _log.warning(
            "%s was deleted: %d records that were committed to it are gone with it", segments[0].directory, lost
        )

    @abstractmethod
    def make_topic(self, topic: NewTopic, filled: Sequence[int]) -> None:
        """Directories of all its partitions. filled: those that get segments next."""

    @abstractmethod
    def publish_segment(self, segment: PlannedSegment) -> None:
        """Bring a segment to its place: so that a reader meets a whole log at any instant, and doing it again goes on.
        Raises CorruptLog when another segment is there."""

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


FIRST_EPOCH = 0  # leader epoch of a log that has none yet

EMPTY_END = PartitionEnd(0, FIRST_EPOCH, (EpochEntry(FIRST_EPOCH, 0),))
"""Append position of a partition that is not there yet."""

_LOAD = "let a broker load the directory once"
_REPAIR = "copy the partition's directory to a disk, let a broker load it once, and put it back; nothing was written"


def recover_and_locate_end(location: PartitionLocation, *, clean: bool) -> PartitionEnd:
    """Append position on a disk; the log is made whole where a crash left it otherwise.

    clean: a broker closed the log directory cleanly. Raises CorruptLog (CorruptBatch, UnsupportedFormat) for a log that
    only a broker may repair, NotALogDirectory, OSError; the records that were there stay.
    """
    try:
        log = location.open()
        _check_cleaned(log, _LOAD)
        if not clean:
            _check_unflushed(log)
        end = log.log_end
        if log.segments:
            _recover_last_segment(log)
        epochs = read_leader_epochs(Path(location.directory) / LEADER_EPOCH_CHECKPOINT)
    except OffsetOverflow as overflow:
        raise CorruptLog(
            str(overflow),
            topic_partition=f"{location.topic}-{location.partition}",
            hint=f"{_LOAD}: it splits the segment",
        ) from None
    except KafkalogError as error:
        raise error.at(topic_partition=f"{location.topic}-{location.partition}") from None
    return PartitionEnd(end.offset, *leader_epochs_at(epochs, end.offset))


def locate_end_in_bucket(
    location: PartitionLocation, last: PlannedSegment | None, checkpoints: Checkpoints
) -> PartitionEnd:
    """Append position in a bucket. One LIST, if `last`, the partition's last segment by the newest commit, is still the
    last one; else the end is looked for as readers do.

    What lies before the last segment is believed. Raises CorruptLog for a log that has to be cut or cleaned first,
    NotALogDirectory, FileNotFoundError.
    """
    log = location.open_unread()
    if (
        last is not None
        and log.segments
        and log.segments[-1].base_offset == last.base_offset
        and log.size_of(len(log.segments) - 1) == last.size
    ):
        return PartitionEnd(last.next_offset, last.leader_epoch, None)
    try:
        _check_cleaned(log, _REPAIR)
        log = location.open(checkpoints=checkpoints)
        end = log.log_end
        size = log.size_of(len(log.segments) - 1) if log.segments else 0
        if size != end.position:
            raise CorruptLog(
                f"the last segment has {size - end.position} bytes after its last whole batch, at byte {end.position}, "
                "as a crash or a copy of a running broker's file leaves them; an object cannot be cut",
                path=os.path.join(location.directory, log.segments[-1].log),
                position=end.position,
                offset=end.offset,
                hint=_REPAIR,
            )
    except KafkalogError as error:
        error.hint = error.hint or _REPAIR
        raise error.at(topic_partition=f"{location.topic}-{location.partition}") from None
    replaces = bool(log.segments) and size == 0 and log.segments[-1].base_offset == end.offset
    epochs = leader_epochs(location.store, location.directory)
    return PartitionEnd(end.offset, *leader_epochs_at(epochs, end.offset), replaces)


def _check_cleaned(log: PartitionLog, hint: str) -> None:
    for name in log.names:
        if name.endswith((names.SWAP_SUFFIX, names.CLEANED_SUFFIX)) and names.parse_segment_file(name):
            raise CorruptLog(f"{name} is left from a cleaning that was not finished", path=log.directory, hint=hint)


def leader_epochs_at(epochs: list[EpochEntry], next_offset: int) -> tuple[int, tuple[EpochEntry, ...] | None]:
    """(epoch of batches from `next_offset` on, the entries that the checkpoint needs for them or None).

    The latest epoch goes on. An entry after the end, of a leader that was cut off, begins at the end.
    """
    epoch = epochs[-1].epoch if epochs else FIRST_EPOCH
    kept = [entry for entry in epochs if entry.start_offset <= next_offset]
    if kept and kept[-1].epoch == epoch:
        return epoch, None
    return epoch, (*(entry for entry in kept if entry.start_offset < next_offset), EpochEntry(epoch, next_offset))


def _check_unflushed(log: PartitionLog) -> None:
    """Check the batches of the segments between the recovery point and the last one, and flush them.

    Nothing is appended after damage: recovery would cut the records off again.
    """
    first = log.segment_index(log.recovery_point or 0)
    for segment in log.segments[first:-1]:
        path = os.path.join(log.directory, segment.log)
        with descriptor(path) as fd:
            try:
                for _, wrong in ordered_windows(fd, Path(path), segment.base_offset, os.fstat(fd).st_size):
                    if wrong is not None:
                        raise wrong
                os.fsync(fd)
            except KafkalogError as error:
                error.hint = error.hint or "let a broker recover the directory, or restore the segment from a backup"
                raise error.at(path=path) from None


def _recover_last_segment(log: PartitionLog) -> None:
    """Cut a torn tail off the last segment and complete its indexes, unless it was closed."""
    last, end = log.segments[-1], log.log_end
    path = Path(log.directory, last.log)
    if path.stat().st_size == end.position and (end.position == 0 or _was_closed(path, last.base_offset)):
        return
    if path.stat().st_size > end.position:
        os.truncate(path, end.position)  # before the indexes: `end` is what was proven
    recovered = recover_segment(Path(log.directory), last.base_offset, sync=True)
    if end.position and recovered.next_offset != end.offset:
        raise CorruptLog(
            f"the log ends at offset {end.offset}, but recovery of its last segment at {recovered.next_offset}",
            path=str(path),
            hint="let a broker recover the directory",
        )


def _was_closed(path: Path, base_offset: int) -> bool:
    """True when both indexes are there and cut to their entries, as rolling and a clean close leave them."""
    try:
        offset_size = path.with_suffix(names.OFFSET_INDEX_SUFFIX).stat().st_size
        time_size = path.with_suffix(names.TIME_INDEX_SUFFIX).stat().st_size
    except FileNotFoundError:
        return False
    offsets = load_offset_index(path.with_suffix(names.OFFSET_INDEX_SUFFIX), base_offset)
    times = load_time_index(path.with_suffix(names.TIME_INDEX_SUFFIX), base_offset)
    return len(offsets) * OFFSET_ENTRY_SIZE == offset_size and len(times) * TIME_ENTRY_SIZE == time_size > 0
