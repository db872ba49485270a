"""Log directory on a disk: locks, steps of a commit, and staged files that are moved to their places.

Of each segment the .log is moved last, so that what a broker or reader meets in between is a whole log: an index
without a .log is ignored, or removed by a broker and made again here. Only where the log ends with an empty segment of
the same base offset is the .log moved first, without indexes: an index that speaks of records that are not there would
be taken for that segment's.

    kafkalog.commits-<20 digits>.json, kafkalog.commits-done    the commit log, as plain files (see local_jobs)
    kafkalog.sink.lock       held by a sink that commits
    kafkalog.sink-*          staged files and jobs (local_jobs)
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kafkalog_spark.errors import (
    BrokerOwnsDirectory,
    CorruptFile,
    JobEnded,
    KafkalogError,
    LogDirLocked,
    NotALogDirectory,
    UnsupportedFormat,
)
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import (
    DIRECTORY_MODE,
    FILE_MODE,
    descriptor,
    read_whole,
    write_all,
)
from kafkalog_spark.format.checkpoint import (
    RECOVERY_POINT_CHECKPOINT,
    format_offset_checkpoint,
    read_offset_checkpoint,
)
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE, read_meta_properties
from kafkalog_spark.format.names import DirKind, parse_partition_dir
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    format_partition_metadata,
    read_partition_metadata,
)
from kafkalog_spark.format.producer_snapshot import format_producer_snapshot, read_producer_snapshot
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.discovery import partition_dirs
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.write.log_dir_lock import LogDirLock
from kafkalog_spark.sink import local_jobs
from kafkalog_spark.sink.commit_log import CommitLog, new_record_id
from kafkalog_spark.sink.commit_plan import (
    CommitRecord,
    NewTopic,
    PartitionEnd,
    PlannedSegment,
    TopicPartition,
    reassign_offsets,
)
from kafkalog_spark.sink.disk import Disk, WriteBehind
from kafkalog_spark.sink.medium import (
    INDEX_SUFFIXES,
    check_no_segments,
    record_number,
    segment_file,
    segment_in_the_way,
)
from kafkalog_spark.sink.partition_end import EMPTY_END, recover_and_locate_end

_log = logging.getLogger(__name__)

JOIN_BYTES = 4 << 20
"""Staged files up to this size are joined to one segment with their neighbours: a segment for each task of each
micro-batch would leave a broker with many thousands of files. Larger ones are not: what is joined is copied and flushed
a second time while nothing else goes on."""

COMMITS = "kafkalog.commits-"

SINK_LOCK_FILE = "kafkalog.sink.lock"
"""Held by a sink that commits, in addition to Kafka's `.lock`: whoever has that without this one is a broker."""

COMMIT_WAIT_SECONDS = 300.0
"""How long a commit waits for another sink's. One takes seconds; a large one syncs many gigabytes."""

_PROBE_SECONDS = 0.2
_STEP_SECONDS = 0.02  # commits take milliseconds to seconds


class Deadline:
    """`wait` sleeps a moment and says whether there is time left. The clock starts at the first call."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end: float | None = None

    def wait(self) -> bool:
        if self._end is None:
            self._end = time.monotonic() + self.seconds
        if time.monotonic() >= self._end:
            return False
        time.sleep(_STEP_SECONDS)
        return True


@dataclass(frozen=True)
class LocalMedium:
    """Log directory on a disk: see Medium. disk, now_s, wait_s: the file system, the clock and the longest wait for
    another sink, for tests."""

    log_dir: Path
    disk: Disk = Disk()  # noqa: RUF009  it has no state
    now_s: Callable[[], float] = time.time
    wait_s: float = COMMIT_WAIT_SECONDS

    commits = COMMITS
    remote = False
    join_bytes = JOIN_BYTES

    def path(self, name: str = "") -> str:
        return str(self.log_dir / name)

    def unwritable(self, error: OSError) -> KafkalogError:
        return NotALogDirectory(
            f"cannot be written: {error.strerror or error}",
            path=str(error.filename or self.log_dir),
            hint="nothing was written; the driver and every executor need the directory, writable, under the same path",
        )

    # ---- the directory and its locks

    def check_target(self) -> None:
        path = self.log_dir
        try:
            listing = os.listdir(path)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise NotALogDirectory(
                "is a file, a log directory is written to", path=str(path), hint="give what log.dirs names"
            ) from None
        except OSError as error:
            raise NotALogDirectory(f"cannot be read: {error.strerror}", path=str(path)) from error
        check_no_segments(listing, str(path), str(path.parent))
        read_meta_properties(path / META_PROPERTIES_FILE)
        known = {META_PROPERTIES_FILE, names.LOCK_FILE, SINK_LOCK_FILE}
        if listing and not any(
            name in known or name.startswith(COMMITS) or local_jobs.job_of(name) or parse_partition_dir(name)
            for name in listing
        ):
            LogDirs.open(path)  # raises for a directory without anything of Kafka's
        self.check_no_broker()

    def check_no_broker(self) -> None:
        """Raise BrokerOwnsDirectory when a broker runs on the directory. Makes no file; another sink is no matter."""
        path = self.log_dir
        if not (path / names.LOCK_FILE).exists():
            return
        deadline = Deadline(_PROBE_SECONDS)
        try:
            while True:
                try:
                    LogDirLock.acquire(path).release()
                    return
                except LogDirLocked:
                    if _is_locked(path, SINK_LOCK_FILE):
                        return
                    if not deadline.wait():
                        raise _broker_owns(path) from None
        except OSError as error:
            raise self.unwritable(error) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Both locks of the directory, which go with the process. Waits for another sink.

        Raises LogDirLocked when one holds them for too long, BrokerOwnsDirectory at once when a broker has the
        directory, OSError.
        """
        path, deadline = self.log_dir, Deadline(self.wait_s)
        while True:
            try:
                ours = LogDirLock.acquire(path, SINK_LOCK_FILE)
                break
            except LogDirLocked:
                if not deadline.wait():
                    raise LogDirLocked(
                        f"another sink has been committing here for more than {deadline.seconds:g} s",
                        path=str(path / SINK_LOCK_FILE),
                        hint="if it hangs, end its process: the lock goes with it",
                    ) from None
        try:
            kafkas = _lock_of_broker(path)
            try:
                yield
            finally:
                kafkas.release()
        finally:
            ours.release()

    def make_directory(self) -> bool:
        made = not self.log_dir.exists()
        self.log_dir.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        return made

    # ---- jobs

    def begin_job(self, job: str, stream: str | None, *, made_directory: bool) -> None:
        described = local_jobs.Job(job, local_jobs.driver_process(), stream, made_directory)
        with descriptor(self.log_dir / local_jobs.job_file(job), os.O_WRONLY | os.O_CREAT) as file:
            write_all(file, local_jobs.format_job(described))

    def stage(self, job: str) -> LocalStage:
        return LocalStage(self, job)

    def _jobs(self) -> dict[str, list[str]]:
        return local_jobs.jobs_in(self._listing())

    def _listing(self) -> list[str]:
        try:
            return os.listdir(self.log_dir)
        except FileNotFoundError:
            return []

    def staged(self, job: str) -> list[str]:
        return self._jobs().get(job, [])

    def jobs_of_stream(self, job: str, stream: str | None) -> list[str]:
        if stream is None:
            return [job]
        others = self._jobs().keys() - {job}
        return [job, *(other for other in others if local_jobs.read_job(self.log_dir, other).stream == stream)]

    def dead_jobs(self) -> list[str]:
        now = self.now_s()
        jobs = self._jobs().items()
        read = local_jobs.read_job
        return [job for job, files in jobs if local_jobs.is_dead(self.log_dir, read(self.log_dir, job), files, now)]

    def end_jobs(self, jobs: Iterable[str]) -> None:
        """Remove the .job file, then everything the job staged. A log directory that was made for it and has nothing
        else is removed."""
        for job in jobs:
            made_directory = local_jobs.read_job(self.log_dir, job).made_directory
            self.disk.unlink(self.log_dir / local_jobs.job_file(job))
            self.delete(self.staged(job))
            if made_directory:
                with suppress(OSError):  # somebody else has begun to use it
                    self.log_dir.rmdir()

    def sweep(self, job: str) -> None:
        self.end_jobs([job])
        for dead in self.dead_jobs():
            _log.warning("removed what a writer that has ended left in %s (job %s)", self.log_dir, dead)
            self.end_jobs([dead])

    # ---- commit records

    def commit_files(self, after: str = "") -> list[str]:
        found = (name.removeprefix(COMMITS) for name in self._listing() if name.startswith(COMMITS))
        return sorted(name for name in found if name > after)

    def read(self, name: str, most: int) -> bytes:
        return read_whole(self.log_dir / name, most)

    def create(self, name: str, data: bytes) -> bool:
        return self.disk.create_file(self.log_dir / name, data)

    def replace_hint(self, name: str, data: bytes) -> None:
        self.disk.replace_file(self.log_dir / name, data, sync=False)

    def replace(self, name: str, data: bytes) -> None:
        self.disk.replace_file(self.log_dir / name, data)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.disk.unlink(self.log_dir / name)

    def expect_put_if_absent(self) -> None:
        """Nothing is to be asked: file systems keep it, and the directory is locked."""

    def superseded(self, number: int) -> list[str]:
        """All older records: nobody without the locks writes one."""
        files = ((record_number(file), file) for file in self.commit_files())
        return [file for found, file in files if found is not None and found < number]

    # ---- where logs end

    def topics(self) -> dict[str, list[int]]:
        """See Medium. A missing directory has none."""
        topics: dict[str, list[int]] = {}
        with contextlib.suppress(FileNotFoundError):
            for parsed, _ in partition_dirs(self.log_dir):
                if parsed.kind is DirKind.LIVE:
                    topics.setdefault(parsed.topic, []).append(parsed.partition)
        return {topic: sorted(partitions) for topic, partitions in topics.items()}

    def topics_unlocked(self) -> dict[str, list[int]]:
        """`topics` for who does not hold the directory's locks: a topic that another sink is making just now has all
        the partitions that it will have, not those whose directories are there so far. Raises as CommitLog.read."""
        commits = CommitLog(self)
        while True:
            look, newest = commits.last()
            topics = self.topics()
            if commits.look() == look:
                break  # else a commit began or ended meanwhile, and the listing may show the middle of it
        for topic in () if look.done else newest.topics:
            topics[topic.name] = sorted({*topics.get(topic.name, ()), *range(topic.partitions)})
        return topics

    def ends(
        self, keys: Iterable[TopicPartition], existing: Mapping[str, list[int]], newest: CommitRecord
    ) -> dict[TopicPartition, PartitionEnd]:
        clean = (self.log_dir / names.CLEAN_SHUTDOWN_FILE).exists()
        ends = {}
        for topic, partition in keys:
            place = PartitionLocation(topic, partition, str(self.log_dir / f"{topic}-{partition}"))
            is_here = partition in existing.get(topic, ())
            ends[topic, partition] = recover_and_locate_end(place, clean=clean) if is_here else EMPTY_END
        return ends

    # ---- staged files

    def prepare(self, record: CommitRecord) -> None:
        """Join small staged files, and give all of them their offsets and indexes."""
        self._number(record.segments, join=True)
        self.disk.fsync_directory(self.log_dir)

    def _number(self, segments: Iterable[PlannedSegment], *, join: bool) -> None:
        def numbered() -> Iterator[Path]:
            for segment in segments:
                log = self.log_dir / local_jobs.log_file(segment)
                if join and len(segment.pieces) > 1:
                    self.disk.join([self.log_dir / piece.name for piece in segment.pieces], log)
                self._restamp(segment, log)
                yield from (log, *(log.with_suffix(suffix) for suffix in INDEX_SUFFIXES))

        self.disk.flush(numbered())  # one file is written to the disk while the next gets its offsets

    def _restamp(self, segment: PlannedSegment, log: Path) -> None:
        found = self.disk.restamp(log, segment.base_offset, segment.leader_epoch)
        if found != segment.next_offset:
            raise KafkalogError(
                f"a staged file holds {found - segment.base_offset} records, its task reported {segment.records}",
                path=str(log),
                hint="somebody else changed it; nothing was written, run the write again",
            )

    def remaining(self, record: CommitRecord) -> CommitRecord:
        """Segments whose staged .log is still there; behind what a broker has written meanwhile."""
        existing = self.topics()
        left = [segment for segment in record.segments if (self.log_dir / local_jobs.log_file(segment)).exists()]
        # Topics are made before the first segment moves: once one has, a topic that is missing was deleted.
        topics = record.topics if len(left) == len(record.segments) else ()
        created = {topic.name for topic in topics}
        here = {(topic, partition) for topic, partitions in existing.items() for partition in partitions}
        self._finish_moves([segment for segment in record.segments if segment not in left and segment.key in here])
        kept = [segment for segment in left if segment.topic in created or segment.key in here]
        for segment in left:
            if segment not in kept:
                _log.warning(
                    "%s was deleted: %d records that were committed to it are gone with it",
                    segment.directory, segment.records,
                )  # fmt: skip
        assigned = reassign_offsets(kept, self.ends({segment.key for segment in kept}, existing, record))
        self._number(assigned, join=False)  # indexes may have been removed by a broker, offsets may be others
        return replace(record, id=new_record_id(), topics=topics, segments=assigned)

    def _finish_moves(self, segments: Iterable[PlannedSegment]) -> None:
        """Move the indexes that have not followed their .log, and flush the directories."""
        for segment in segments:
            staged, target = self._paths(segment)
            for suffix in INDEX_SUFFIXES:
                if staged.with_suffix(suffix).exists() and not target.with_suffix(suffix).exists():
                    self.disk.rename(staged.with_suffix(suffix), target.with_suffix(suffix))
        self.disk.flush(sorted({self._paths(segment)[1].parent for segment in segments}))

    def _paths(self, segment: PlannedSegment) -> tuple[Path, Path]:
        """Where the .log is staged, and its place."""
        log = self.log_dir / segment_file(segment, names.LOG_SUFFIX)
        return self.log_dir / local_jobs.log_file(segment), log

    # ---- publishing

    def each(self, work: Sequence[tuple[int, Callable[[], None]]]) -> None:
        """See Medium. One after the other: files are only moved."""
        for _, one in work:
            one()

    def make_topic(self, topic: NewTopic, filled: Sequence[int]) -> None:
        """The directories of all its partitions; those that are not to be filled get an empty segment."""
        topic_id = self._topic_id(topic)
        for partition in range(topic.partitions):
            directory = self.log_dir / f"{topic.name}-{partition}"
            self.disk.mkdir(directory)
            if read_partition_metadata(directory / PARTITION_METADATA_FILE) is None:
                metadata = format_partition_metadata(PartitionMetadata(topic_id))
                self.disk.replace_file(directory / PARTITION_METADATA_FILE, metadata)
            if partition not in filled and not any(directory.glob("*" + names.LOG_SUFFIX)):
                self.disk.write_log(directory / (names.segment_name(0) + names.LOG_SUFFIX))
                self.disk.fsync_directory(directory)
        self.disk.fsync_directory(self.log_dir)

    def _topic_id(self, topic: NewTopic) -> uuid.UUID:
        """The planned id, unless a broker that came in between has given the topic another."""
        for partition in range(topic.partitions):
            path = self.log_dir / f"{topic.name}-{partition}" / PARTITION_METADATA_FILE
            metadata = read_partition_metadata(path)
            if metadata is not None:
                return metadata.topic_id
        return topic.id

    def publish_segment(self, segment: PlannedSegment) -> None:
        staged, target = self._paths(segment)
        if not target.exists():
            for suffix in INDEX_SUFFIXES:
                self.disk.rename(staged.with_suffix(suffix), target.with_suffix(suffix))
            self.disk.rename(staged, target)
            return
        if target.stat().st_size:
            raise segment_in_the_way(segment, str(target), "somebody wrote to the log without the directory's lock")
        for suffix in INDEX_SUFFIXES:
            self.disk.unlink(target.with_suffix(suffix))
        self.disk.rename(staged, target)
        for suffix in INDEX_SUFFIXES:
            self.disk.rename(staged.with_suffix(suffix), target.with_suffix(suffix))

    def end_publish(self, record: CommitRecord) -> None:
        """Producer snapshots and recovery points, as a broker writes them, and the flush of all that moved."""
        written = [self.log_dir]
        by_partition = record.by_partition()
        for segments in by_partition.values():
            directory = self.log_dir / segments[0].directory
            snapshot = self._snapshot_at(segments[0])
            if snapshot is not None:
                # The records here have no producers, so the state at the new end is that at the old one.
                # A snapshot that a crash of the machine empties is dropped by brokers, and made again from the log.
                path = directory / (names.segment_name(segments[-1].next_offset) + names.PRODUCER_SNAPSHOT_SUFFIX)
                self.disk.replace_file(path, snapshot, sync=False)
                written.append(path)
            written.append(directory)
        self.disk.flush(written)
        flushed = {key: segments[-1].next_offset for key, segments in by_partition.items()}
        created = {(topic.name, n): 0 for topic in record.topics for n in range(topic.partitions)}
        self._raise_recovery_points(created | flushed)

    def _snapshot_at(self, segment: PlannedSegment) -> bytes | None:
        """Producer snapshot of where a segment begins, where a broker or a sink has left one."""
        if segment.base_offset == 0:
            return format_producer_snapshot([])
        try:
            path = self.log_dir / segment_file(segment, names.PRODUCER_SNAPSHOT_SUFFIX)
            return format_producer_snapshot(read_producer_snapshot(path))
        except (OSError, KafkalogError):
            return None  # brokers drop it, too, and read the log instead

    def _raise_recovery_points(self, flushed: Mapping[TopicPartition, int]) -> None:
        """Everything below these offsets is on disk: a broker that starts after a crash need not scan it."""
        path = self.log_dir / RECOVERY_POINT_CHECKPOINT
        try:
            points = read_offset_checkpoint(path)
        except (CorruptFile, UnsupportedFormat) as error:
            _log.warning("%s; it is left as it is, and a broker will check the logs from their beginning", error)
            return
        raised = {key: offset for key, offset in flushed.items() if offset > points.get(key, -1)}
        if raised:
            self.disk.replace_file(path, format_offset_checkpoint(points | raised))


def _is_locked(path: Path, file_name: str) -> bool:
    if not (path / file_name).exists():
        return False
    try:
        LogDirLock.acquire(path, file_name).release()
    except LogDirLocked:
        return True
    return False


def _lock_of_broker(path: Path) -> LogDirLock:
    """Kafka's lock. Tried for a moment: another sink takes it, too, to see whether it can."""
    deadline = Deadline(_PROBE_SECONDS)
    while True:
        try:
            return LogDirLock.acquire(path)
        except LogDirLocked:
            if not deadline.wait():
                raise _broker_owns(path) from None


def _broker_owns(path: Path) -> BrokerOwnsDirectory:
    return BrokerOwnsDirectory(
        f"a running broker owns this log directory ({names.LOCK_FILE} is locked)",
        path=str(path),
        hint="write through it with option kafka.bootstrap.servers (at least once), or stop it first",
    )


class LocalStage:
    """Files in a log directory of this machine. Not kept open: a process may open only so many."""

    held_bytes = sys.maxsize  # they are not in memory

    def __init__(self, medium: LocalMedium, job: str) -> None:
        self._medium = medium
        self._log_dir = medium.log_dir
        self._job = job
        self._names: list[str] = []
        self._write_behind = WriteBehind()

    def file_bytes(self, segment_bytes: int) -> int:
        """A file becomes a segment, perhaps with small neighbours."""
        return segment_bytes

    def topics(self) -> dict[str, list[int]]:
        return self._medium.topics_unlocked()

    def begin(self, task: int, attempt: str, number: int) -> str:
        name = local_jobs.staged_file(self._job, task, attempt, number)
        os.close(os.open(self._log_dir / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        self._names.append(name)
        if not local_jobs.job_lives(self._log_dir, self._job):  # looked for after the file was made: see local_jobs
            raise JobEnded(
                f"the write that this task belongs to is over (job {self._job})",
                path=str(self._log_dir),
                hint="driver and executors must see the same directory under this path",
            )
        return name

    def append(self, name: str, data: memoryview) -> None:
        path = self._log_dir / name
        with descriptor(path, os.O_WRONLY | os.O_APPEND) as fd:
            write_all(fd, data)
        self._write_behind.wrote(path, len(data))

    def finish(self, name: str) -> None:
        """Nothing is to be done."""

    def close(self) -> None:
        self._write_behind.close()

    def discard(self) -> None:
        with suppress(OSError):  # the files go, so does what the disk said of them
            self._write_behind.close()
        for name in self._names:
            (self._log_dir / name).unlink(missing_ok=True)

    def error(self, error: OSError) -> KafkalogError:
        return self._medium.unwritable(error)
