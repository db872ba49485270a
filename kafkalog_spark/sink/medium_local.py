"""Log directory on a disk: locks, steps of a commit, and staged files that are moved to their places.

The .log of each segment is moved last. Until then a broker and a reader see the whole log as it was before: they ignore
or remove an index without a .log. The exception is a log that ends with an empty segment of the same base offset: its
indexes are removed, then the .log is moved, then the new indexes, with an fsync of the directory between these steps.
Otherwise the entries of the new indexes could be taken for those of the empty .log.

A crash of the machine may keep any of the renames that were not followed by an fsync of the directory. Therefore the
directory is synced before the next segment of the same partition is moved: no later segment is there without an earlier
one. Offsets are assigned only after all of the log below them is on disk (log_recovery), so that the recovery points
which a commit writes at its end are true.

    kafkalog.commits-<20 digits>.json, kafkalog.commits-done    the commit log, as plain files (see staging)
    kafkalog.sink.lock       held by a sink that commits
    kafkalog.sink-*          staged files and jobs (staging)
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark import errors
from kafkalog_spark.format import atomic_file, checkpoint, names
from kafkalog_spark.format import partition_metadata as metadata
from kafkalog_spark.format.atomic_file import descriptor, write_all
from kafkalog_spark.format.producer_snapshot import format_producer_snapshot, read_producer_snapshot
from kafkalog_spark.log.read.local_log_dir import partition_dirs
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.state_files import Checkpoints
from kafkalog_spark.log.write.log_dir_lock import LogDirLock
from kafkalog_spark.log.write.segment_recovery import OffsetOverflow
from kafkalog_spark.log.write.segment_restamping import restamp_segment
from kafkalog_spark.sink import commit_plan, staging
from kafkalog_spark.sink.commit_plan import CommitRecord, NewTopic, PartitionEnd, PlannedSegment
from kafkalog_spark.sink.log_recovery import is_closed, log_files, recover_log
from kafkalog_spark.sink.medium import INDEX_SUFFIXES, Medium, check_cleaned
from kafkalog_spark.store.interface import LOCAL

_log = logging.getLogger(__name__)

SINK_LOCK_FILE = "kafkalog.sink.lock"
"""Held by a sink that commits, in addition to Kafka's `.lock`: whoever has that without this one is a broker."""

COMMIT_WAIT_SECONDS = 300.0
"""How long a commit waits for another sink's. One takes seconds; a large one syncs many gigabytes."""

_PROBE_SECONDS = 0.2
_STEP_SECONDS = 0.02  # commits take milliseconds to seconds
_ASIDE = "kafkalog.commits.tmp"
_FLUSHES_AT_ONCE = 8
_LOAD = "let a broker load the directory once"


@dataclass(frozen=True)
class LocalMedium(Medium):
    """now_s, wait_s: the clock and the longest wait for another sink."""

    log_dir: Path
    now_s: Callable[[], float] = time.time
    wait_s: float = COMMIT_WAIT_SECONDS

    remote = False
    store = LOCAL
    commits = "kafkalog.commits-"
    parallel = 1  # files are only moved
    word = "a file"
    needs = "the driver and every executor need the directory, writable, under the same path"
    join_bytes = 4 << 20
    """A segment for each task of each micro-batch would leave a broker with many thousands of files. Larger ones are
    not joined: what is joined is copied and flushed a second time while nothing else goes on."""

    @property
    def root(self) -> str:  # type: ignore[override]
        return str(self.log_dir)

    def listing(self) -> list[str]:
        try:
            return os.listdir(self.log_dir)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise
        except OSError as error:
            raise errors.NotALogDirectory(f"cannot be read: {error.strerror}", path=self.root) from error

    # The directory's locks.

    def check_target(self) -> None:
        """Makes no file; another sink is no matter."""
        super().check_target()
        if not (self.log_dir / names.LOCK_FILE).exists():
            return
        for _ in _tries(_PROBE_SECONDS):
            if self._is_free(names.LOCK_FILE):
                return
            if (self.log_dir / SINK_LOCK_FILE).exists() and not self._is_free(SINK_LOCK_FILE):
                return
        raise self._owned_by_broker()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Both go with the process. A broker is not waited for."""
        ours = self._lock(SINK_LOCK_FILE, self.wait_s)
        if ours is None:
            raise errors.LogDirLocked(
                f"another sink has been committing here for more than {self.wait_s:g} s",
                path=self.path(SINK_LOCK_FILE),
                hint="if it hangs, end its process: the lock goes with it",
            )
        with ExitStack() as held:
            held.callback(ours.release)
            kafkas = self._lock(names.LOCK_FILE, _PROBE_SECONDS)  # another sink may be looking whether it can take it
            if kafkas is None:
                raise self._owned_by_broker()
            held.callback(kafkas.release)
            yield

    def _lock(self, file_name: str, seconds: float = 0.0) -> LogDirLock | None:
        for _ in _tries(seconds):
            with suppress(errors.LogDirLocked):
                return LogDirLock.acquire(self.log_dir, file_name)
        return None

    def _is_free(self, file_name: str) -> bool:
        lock = self._lock(file_name)
        if lock is not None:
            lock.release()
        return lock is not None

    def _owned_by_broker(self) -> errors.BrokerOwnsDirectory:
        return errors.BrokerOwnsDirectory(
            f"a running broker owns this log directory ({names.LOCK_FILE} is locked)",
            path=self.root,
            hint="write through it with option kafka.bootstrap.servers (at least once), or stop it first",
        )

    # Jobs.

    def begin_job(self, job: str, stream: str | None) -> None:
        made = not self.log_dir.exists()
        atomic_file.make_directories(self.log_dir)
        described = staging.Job(staging.driver_process(), stream, made)
        with descriptor(self.log_dir / staging.job_file(job), os.O_WRONLY | os.O_CREAT) as file:
            write_all(file, staging.format_job(described))

    def stage(self, job: str) -> staging.LocalStage:
        return staging.LocalStage(self.log_dir, job)

    def staged(self, job: str) -> list[str]:
        return staging.files_of_jobs(self.listing()).get(job, [])

    def jobs_of_stream(self, job: str, stream: str | None) -> list[str]:
        if stream is None:
            return [job]
        others = staging.files_of_jobs(self.listing()).keys() - {job}
        return [job, *(other for other in others if staging.read_job(self.log_dir, other).stream == stream)]

    def dead_jobs(self) -> list[str]:
        now, jobs = self.now_s(), staging.files_of_jobs(self.listing())
        return [job for job, files in jobs.items() if staging.is_dead(self.log_dir, job, files, now)]

    def end_jobs(self, jobs: Iterable[str]) -> None:
        """The .job file first. A log directory that was made for the job and has nothing else is removed."""
        for job in jobs:
            made_directory = staging.read_job(self.log_dir, job).made_directory
            self.delete([staging.job_file(job)])
            self.delete(self.staged(job))
            if made_directory:
                with suppress(OSError):  # somebody else has begun to use it
                    self.log_dir.rmdir()

    def sweep(self, job: str) -> None:
        self.end_jobs([job])
        for dead in self.dead_jobs():
            _log.warning("removed what a writer that has ended left in %s (job %s)", self.log_dir, dead)
            self.end_jobs([dead])

    # Commit records.

    def commit_files(self, after: str = "") -> list[str]:
        files = (name.removeprefix(self.commits) for name in self.listing() if name.startswith(self.commits))
        return sorted(name for name in files if name > after)

    def superseded(self, number: int) -> list[str]:
        """All: nobody without the locks writes one."""
        return self.commit_files()

    def read(self, name: str, most: int) -> bytes:
        return atomic_file.read_whole(self.log_dir / name, most)

    def create(self, name: str, data: bytes) -> bool:
        path, aside = self.log_dir / name, self.log_dir / _ASIDE
        self.step("create", path)
        aside.unlink(missing_ok=True)  # a killed writer may have left it, as another name of a file that it made
        try:
            with descriptor(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
                write_all(fd, data)
                atomic_file.fsync_descriptor(fd)
            try:
                os.link(aside, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                    raise
                if path.exists():  # a file system without links: the directory's locks have to do
                    return False
                os.rename(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        atomic_file.fsync_directory(self.log_dir)
        return True

    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        path = self.log_dir / name
        self.step("write", path)
        atomic_file.replace_file(path, data, sync=sync)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.step("unlink", self.log_dir / name)
            (self.log_dir / name).unlink(missing_ok=True)

    def _rename(self, old: Path, new: Path) -> None:
        self.step("rename", new)
        os.rename(old, new)

    def _fsync_directory(self, path: Path) -> None:
        self.step("fsync", path)
        atomic_file.fsync_directory(path)

    def _flush(self, paths: Iterable[Path]) -> None:
        """Return when these files, and the entries of these directories, are on disk. Several at once: a file system
        writes them together. `paths` may make a file before it names it: the files before are flushed meanwhile."""
        with ThreadPoolExecutor(_FLUSHES_AT_ONCE, "flush") as threads:
            running: list[Future[None]] = []
            for path in paths:
                if not running:
                    self.step("flush", path)
                running.append(threads.submit(atomic_file.fsync_file, path))
            for flushed in running:
                flushed.result()

    # Segments.

    def partition_dirs(self) -> Iterable[names.PartitionDir]:
        with suppress(FileNotFoundError):
            for parsed, _ in partition_dirs(self.log_dir):
                yield parsed

    def end_of(
        self, location: PartitionLocation, last: PlannedSegment | None, checkpoints: Checkpoints
    ) -> PartitionEnd:
        try:
            log = location.open()
            check_cleaned(log, _LOAD)
            end = log.log_end
            if self._is_untouched(log, last):
                directory = Path(location.directory)
                epochs = checkpoint.read_leader_epochs(directory / checkpoint.LEADER_EPOCH_CHECKPOINT)
            else:
                epochs = recover_log(log, clean=(self.log_dir / names.CLEAN_SHUTDOWN_FILE).exists())
        except OffsetOverflow as overflow:
            raise errors.CorruptLog(
                str(overflow),
                topic_partition=f"{location.topic}-{location.partition}",
                hint=f"{_LOAD}: it splits the segment",
            ) from None
        except errors.KafkalogError as error:
            raise error.at(topic_partition=f"{location.topic}-{location.partition}") from None
        return PartitionEnd(end.offset, *commit_plan.leader_epochs_at(epochs, end.offset))

    def _is_untouched(self, log: PartitionLog, last: PlannedSegment | None) -> bool:
        """Return True if the newest commit wrote the end of the log and nothing has changed since: all is on disk then.

        A broker that started in between may have appended nothing, and still have written indexes and snapshots again
        without an fsync. The change times of the files tell; a tick of the clock that both share counts as a change.
        """
        if last is None or not log.segments or log.segments[-1].base_offset != last.base_offset:
            return False
        if (log.log_end.offset, log.log_end.position) != (last.next_offset, last.size) or not is_closed(log):
            return False
        try:
            done = (self.log_dir / (self.commits + "done")).stat().st_mtime_ns
        except FileNotFoundError:
            return False
        files = [Path(log.directory), *(Path(log.directory, name) for name in log_files(log))]
        return all(path.stat().st_ctime_ns < done for path in files if path.exists())

    def prepare(self, record: CommitRecord) -> None:
        self._stamp(record.segments, join=True)
        self._fsync_directory(self.log_dir)

    def _stamp(self, segments: Iterable[PlannedSegment], *, join: bool) -> None:
        def stamped() -> Iterator[Path]:
            for segment in segments:
                log = self._staged_log(segment)
                if join and len(segment.pieces) > 1:
                    self.step("join", log)
                    with descriptor(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as out:
                        for piece in segment.pieces:
                            write_all(out, atomic_file.read_whole(self.log_dir / piece.name))
                self.step("restamp", log)
                end = restamp_segment(log, segment.base_offset, segment.leader_epoch)
                if end != segment.next_offset:
                    raise errors.KafkalogError(
                        f"a staged file holds {end - segment.base_offset} records, its task reported {segment.records}",
                        path=str(log),
                        hint="somebody else changed it; nothing was written, run the write again",
                    )
                yield from (log, *(log.with_suffix(suffix) for suffix in INDEX_SUFFIXES))

        self._flush(stamped())  # one file is written to the disk while the next gets its offsets

    def _staged_log(self, segment: PlannedSegment) -> Path:
        """That of its piece, or what several are joined to."""
        first = self.log_dir / segment.pieces[0].name
        return first if len(segment.pieces) == 1 else first.with_name(f"{first.stem}-joined{names.LOG_SUFFIX}")

    def _published_log(self, segment: PlannedSegment) -> Path:
        return self.log_dir / segment.file(names.LOG_SUFFIX)

    def remaining(self, record: CommitRecord) -> CommitRecord:
        """Segments whose staged .log is still there; behind what a broker has written meanwhile."""
        existing = self.topics()
        left = [segment for segment in record.segments if self._staged_log(segment).exists()]
        # Topics are made before the first segment moves: once one has, a topic that is missing was deleted.
        topics = record.topics if len(left) == len(record.segments) else ()
        here = {(topic, partition) for topic, partitions in existing.items() for partition in partitions}
        self._finish_moves([segment for segment in record.segments if segment not in left and segment.key in here])
        created = {topic.name for topic in topics}
        here |= {segment.key for segment in left if segment.topic in created}
        for segment in left:
            if segment.key not in here:
                self.warn_deleted([segment])
        kept = [segment for segment in left if segment.key in here]
        # `record` is not complete, so nothing of it is known to be on disk.
        ends = self.ends({segment.key for segment in kept}, existing, CommitRecord())
        assigned = commit_plan.assign_offsets(kept, ends)
        self._stamp(assigned, join=False)  # indexes may have been removed by a broker, offsets may be others
        return CommitRecord(job=record.job, queries=record.queries, topics=topics, segments=assigned)

    def _finish_moves(self, segments: Iterable[PlannedSegment]) -> None:
        """The indexes that have not followed their .log follow."""
        for segment in segments:
            staged, target = self._staged_log(segment), self._published_log(segment)
            for suffix in INDEX_SUFFIXES:
                if staged.with_suffix(suffix).exists() and not target.with_suffix(suffix).exists():
                    self._rename(staged.with_suffix(suffix), target.with_suffix(suffix))
        self._flush(sorted({self.log_dir / segment.directory for segment in segments}))

    def make_topic(self, topic: NewTopic, filled: Sequence[int]) -> None:
        """Those that are not to be filled get an empty segment."""
        directories = [self.log_dir / f"{topic.name}-{partition}" for partition in range(topic.partitions)]
        read = (metadata.read_partition_metadata(path / metadata.PARTITION_METADATA_FILE) for path in directories)
        # a broker that came in between may have given the topic another id
        topic_id = next((found for found in read if found is not None), topic.id)
        data = metadata.format_partition_metadata(topic_id)
        for partition, directory in enumerate(directories):
            self.step("mkdir", directory)
            directory.mkdir(atomic_file.DIRECTORY_MODE, exist_ok=True)
            if metadata.read_partition_metadata(directory / metadata.PARTITION_METADATA_FILE) is None:
                self.replace(f"{directory.name}/{metadata.PARTITION_METADATA_FILE}", data)
            if partition not in filled and not any(directory.glob("*" + names.LOG_SUFFIX)):
                log = directory / (names.segment_name(0) + names.LOG_SUFFIX)
                self.step("empty segment", log)
                for suffix in (*INDEX_SUFFIXES, names.LOG_SUFFIX):  # unless there is one
                    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
                    os.close(os.open(log.with_suffix(suffix), flags, atomic_file.FILE_MODE))
                self._fsync_directory(directory)
        self._fsync_directory(self.log_dir)

    def publish_segment(self, segment: PlannedSegment) -> None:
        staged, target = self._staged_log(segment), self._published_log(segment)
        replaces_empty = target.exists()
        if replaces_empty:
            if target.stat().st_size:
                raise self.in_the_way(segment, "somebody wrote to the log without the directory's lock")
            self.delete([segment.file(suffix) for suffix in INDEX_SUFFIXES])
            self.sync_published(segment)
            self._rename(staged, target)
            self.sync_published(segment)
        for suffix in INDEX_SUFFIXES:
            self._rename(staged.with_suffix(suffix), target.with_suffix(suffix))
        if not replaces_empty:
            self._rename(staged, target)

    def sync_published(self, segment: PlannedSegment) -> None:
        self._fsync_directory(self.log_dir / segment.directory)

    def end_publish(self, record: CommitRecord) -> None:
        """Write producer snapshots and recovery points as a broker does, and flush all that moved."""
        by_partition = record.by_partition()
        snapshots: list[Path] = []

        def written() -> Iterator[Path]:
            for segments in by_partition.values():
                data = self._snapshot_at(segments[0])
                if data is not None:
                    # The records here have no producers, so the state at the new end is that at the old one.
                    stem = names.segment_name(segments[-1].next_offset)
                    path = self.log_dir / segments[0].directory / (stem + names.PRODUCER_SNAPSHOT_SUFFIX)
                    aside = path.with_name(path.name + atomic_file.TEMPORARY_SUFFIX)
                    self.step("write", path)
                    with descriptor(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
                        write_all(fd, data)
                    snapshots.append(path)
                    yield aside

        self._flush(written())
        for path in snapshots:
            self._rename(path.with_name(path.name + atomic_file.TEMPORARY_SUFFIX), path)
        self._flush([self.log_dir, *(self.log_dir / segments[0].directory for segments in by_partition.values())])
        flushed = {key: segments[-1].next_offset for key, segments in by_partition.items()}
        created = {(topic.name, n): 0 for topic in record.topics for n in range(topic.partitions)}
        try:
            points = checkpoint.read_offset_checkpoint(self.log_dir / checkpoint.RECOVERY_POINT_CHECKPOINT)
        except (errors.CorruptFile, errors.UnsupportedFormat) as error:
            _log.warning("%s; it is left as it is, and a broker will check the logs from their beginning", error)
            return
        # everything below these offsets is on disk: a broker that starts after a crash need not scan it
        raised = {key: offset for key, offset in (created | flushed).items() if offset > points.get(key, -1)}
        if raised:
            self.replace(checkpoint.RECOVERY_POINT_CHECKPOINT, checkpoint.format_offset_checkpoint(points | raised))

    def _snapshot_at(self, segment: PlannedSegment) -> bytes | None:
        """Producer snapshot of where a segment begins, where a broker or a sink has left one."""
        if segment.base_offset == 0:
            return format_producer_snapshot([])
        try:
            path = self.log_dir / segment.file(names.PRODUCER_SNAPSHOT_SUFFIX)
            return format_producer_snapshot(read_producer_snapshot(path))
        except (OSError, errors.KafkalogError):
            return None  # brokers drop it, too, and read the log instead


def _tries(seconds: float) -> Iterator[None]:
    """At once, and after every moment's sleep until the deadline."""
    deadline = time.monotonic() + seconds
    yield
    while time.monotonic() < deadline:
        time.sleep(_STEP_SECONDS)
        yield
