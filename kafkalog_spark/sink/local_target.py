"""Segments on a disk: staged files that are moved into the directories of their partitions.

The .log of each segment is moved last. Until then brokers and readers see the log as it was before: they ignore or
remove an index without a .log. The exception is a log that ends with an empty segment of the same base offset: its
indexes are removed, then the .log is moved, then the new indexes, with an fsync of the directory between these steps.
Otherwise the entries of the new indexes could be taken for those of the empty .log.

A crash of the machine may keep any of the renames that were not followed by an fsync of the directory. Therefore the
directory is synced before the next segment of the same partition is moved: no later segment survives without an
earlier one. Offsets are assigned only after all of the log below them is on disk (log_recovery), so that the recovery
points which a commit writes at its end are true.

    kafkalog.sink-*    staged files and jobs (jobs.py)
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark import errors
from kafkalog_spark.format import atomic_file, checkpoint, fsync, names, regular_file
from kafkalog_spark.format import partition_metadata as metadata
from kafkalog_spark.format.producer_snapshot import format_producer_snapshot, read_producer_snapshot
from kafkalog_spark.format.regular_file import descriptor, write_all
from kafkalog_spark.log.read.local_log_dir import partition_dirs
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.state_files import Checkpoints
from kafkalog_spark.log.write.ordered_windows import OffsetOverflow
from kafkalog_spark.log.write.segment_restamping import restamp_segment
from kafkalog_spark.sink.commit_plan import PartitionEnd, assign_offsets, partition_end
from kafkalog_spark.sink.commit_record import CommitRecord, NewTopic, PlannedSegment
from kafkalog_spark.sink.directory_locks import COMMIT_WAIT_SECONDS, DirectoryLocks
from kafkalog_spark.sink.jobs import Job, driver_process, files_of_jobs, format_job, is_dead, job_file, read_job
from kafkalog_spark.sink.local_commit_log import PREFIX
from kafkalog_spark.sink.local_directory import LocalDirectory
from kafkalog_spark.sink.local_stage import LocalStage
from kafkalog_spark.sink.log_recovery import is_closed, log_files, recover_log
from kafkalog_spark.sink.segment_target import INDEX_SUFFIXES, SegmentTarget, check_cleaned

_log = logging.getLogger(__name__)

_FLUSHES_AT_ONCE = 8
_LOAD = "let a broker load the directory once"


@dataclass(frozen=True)
class LocalTarget(SegmentTarget):
    """Segments of a log directory on a disk.

    Attributes:
        now_s: Returns seconds since 1970.
        wait_s: Longest wait for another sink.
    """

    directory: LocalDirectory
    now_s: Callable[[], float] = time.time
    wait_s: float = COMMIT_WAIT_SECONDS

    parallel = 1  # files are only moved
    lists_new_topics_whole = False
    join_bytes = 4 << 20
    """A segment for each task of each micro-batch would leave a broker with many thousands of files. Larger files are
    not joined, because joining copies and flushes them a second time while the commit waits."""

    @property
    def log_dir(self) -> Path:
        return self.directory.log_dir

    def check(self) -> None:
        """Check as `SegmentTarget.check`, and also raise BrokerOwnsDirectory if a broker holds the locks.

        Creates no file. Another sink may hold the locks.
        """
        super().check()
        self._locks.check_no_broker()

    def locked(self) -> AbstractContextManager[None]:
        return self._locks.held()

    @property
    def _locks(self) -> DirectoryLocks:
        return DirectoryLocks(self.log_dir, self.wait_s)

    def begin_job(self, job: str, stream: str | None) -> None:
        makes_directory = not self.log_dir.exists()
        fsync.make_directories(self.log_dir)
        content = format_job(Job(driver_process(), stream, makes_directory))
        with descriptor(self.log_dir / job_file(job), os.O_WRONLY | os.O_CREAT) as file:
            write_all(file, content)

    def stage(self, job: str) -> LocalStage:
        return LocalStage(self.log_dir, job)

    def staged(self, job: str) -> list[str]:
        return files_of_jobs(self.directory.listing()).get(job, [])

    def jobs_of_stream(self, job: str, stream: str | None) -> list[str]:
        if stream is None:
            return [job]
        others = files_of_jobs(self.directory.listing()).keys() - {job}
        return [job, *(other for other in others if read_job(self.log_dir, other).stream == stream)]

    def dead_jobs(self) -> list[str]:
        now, files_by_job = self.now_s(), files_of_jobs(self.directory.listing())
        return [job for job, files in files_by_job.items() if is_dead(self.log_dir, job, files, now)]

    def end_jobs(self, jobs: Iterable[str]) -> None:
        """Remove the .job file first, then the staged files, then an empty log directory that was made for the job."""
        for job in jobs:
            made_directory = read_job(self.log_dir, job).made_directory
            self.directory.delete([job_file(job)])
            self.directory.delete(self.staged(job))
            if made_directory:
                with suppress(OSError):  # another writer has begun to use it
                    self.log_dir.rmdir()

    def sweep(self, job: str) -> None:
        self.end_jobs([job])
        for dead in self.dead_jobs():
            _log.warning("%s: removed the staged files of a writer that has ended (job %s)", self.log_dir, dead)
            self.end_jobs([dead])

    def _flush(self, paths: Iterable[Path]) -> None:
        """Wait until these files, and the entries of these directories, are on disk.

        Several are flushed at once, because a file system writes them together. `paths` may be a generator that writes
        each file before it yields its path; the files before it are flushed meanwhile.
        """
        with ThreadPoolExecutor(_FLUSHES_AT_ONCE, "flush") as threads:
            running: list[Future[None]] = []
            for path in paths:
                if not running:
                    self.directory.step("flush", path)
                running.append(threads.submit(fsync.fsync_file, path))
            for flushed in running:
                flushed.result()

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
        return partition_end(end.offset, epochs)

    def _is_untouched(self, log: PartitionLog, last: PlannedSegment | None) -> bool:
        """Return True if the last commit wrote the end of the log and no file has changed since. All is on disk then.

        A broker that started in between may have rewritten indexes and snapshots without an fsync, even if it appended
        nothing. So the change times (ctime) of the files are compared with that of the commit's `done` file. Equal
        times count as a change, because the clock of a file system is coarse.
        """
        if last is None or not log.segments or log.segments[-1].base_offset != last.base_offset:
            return False
        if (log.log_end.offset, log.log_end.position) != (last.next_offset, last.size) or not is_closed(log):
            return False
        try:
            done_ns = (self.log_dir / (PREFIX + "done")).stat().st_mtime_ns
        except FileNotFoundError:
            return False
        files = [Path(log.directory), *(Path(log.directory, name) for name in log_files(log))]
        return all(path.stat().st_ctime_ns < done_ns for path in files if path.exists())

    def prepare(self, record: CommitRecord) -> None:
        self._stamp(record.segments, join=True)
        self.directory.fsync_directory(self.log_dir)

    def _stamp(self, segments: Iterable[PlannedSegment], *, join: bool) -> None:
        """Write the offsets and the indexes of staged segments, and flush them. join: join their pieces first."""

        def stamped() -> Iterator[Path]:
            for segment in segments:
                log = self._staged_log(segment)
                if join and len(segment.pieces) > 1:
                    self.directory.step("join", log)
                    with descriptor(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as out:
                        for piece in segment.pieces:
                            write_all(out, regular_file.read_whole(self.log_dir / piece.name))
                self.directory.step("restamp", log)
                end = restamp_segment(log, segment.base_offset, segment.leader_epoch)
                if end != segment.next_offset:
                    raise errors.KafkalogError(
                        f"a staged file has {end - segment.base_offset} records, but its task wrote {segment.records}",
                        path=str(log),
                        hint="another process changed the file; nothing was written, run the write again",
                    )
                yield from (log, *(log.with_suffix(suffix) for suffix in INDEX_SUFFIXES))

        self._flush(stamped())  # a file is flushed while the next one gets its offsets

    def _staged_log(self, segment: PlannedSegment) -> Path:
        """Return the path of the segment's only piece, or of the file to which its pieces are joined."""
        first = self.log_dir / segment.pieces[0].name
        return first if len(segment.pieces) == 1 else first.with_name(f"{first.stem}-joined{names.LOG_SUFFIX}")

    def _published_log(self, segment: PlannedSegment) -> Path:
        return self.log_dir / segment.file(names.LOG_SUFFIX)

    def remaining(self, record: CommitRecord) -> CommitRecord:
        """Return the segments whose staged .log still exists. They follow records that a broker has written since."""
        existing = self.topics()
        unmoved = [segment for segment in record.segments if self._staged_log(segment).exists()]
        # All topics are made before the first segment moves. Once a segment has moved, a missing topic was deleted.
        topics = record.topics if len(unmoved) == len(record.segments) else ()
        present = {(topic, partition) for topic, partitions in existing.items() for partition in partitions}
        moved = [segment for segment in record.segments if segment not in unmoved]
        self._finish_moves([segment for segment in moved if segment.key in present])
        created = {topic.name for topic in topics}
        present |= {segment.key for segment in unmoved if segment.topic in created}
        for segment in unmoved:
            if segment.key not in present:
                self.warn_deleted([segment])
        kept = [segment for segment in unmoved if segment.key in present]
        # The commit is not complete, so an empty record is passed: nothing of it is known to be on disk.
        ends = self.ends({segment.key for segment in kept}, existing, CommitRecord())
        assigned = assign_offsets(kept, ends)
        self._stamp(assigned, join=False)  # a broker may have removed indexes; offsets may have changed
        return CommitRecord(job=record.job, queries=record.queries, topics=topics, segments=assigned)

    def _finish_moves(self, segments: Iterable[PlannedSegment]) -> None:
        """Move the indexes of segments whose .log has been moved already."""
        for segment in segments:
            staged, target = self._staged_log(segment), self._published_log(segment)
            for suffix in INDEX_SUFFIXES:
                if staged.with_suffix(suffix).exists() and not target.with_suffix(suffix).exists():
                    self.directory.rename(staged.with_suffix(suffix), target.with_suffix(suffix))
        self._flush(sorted({self.log_dir / segment.directory for segment in segments}))

    def make_topic(self, topic: NewTopic, filled: Sequence[int]) -> None:
        """Create the directories of a topic, with an empty segment in each partition that is not in `filled`."""
        directories = [self.log_dir / f"{topic.name}-{partition}" for partition in range(topic.partitions)]
        present_ids = (
            metadata.read_partition_metadata(path / metadata.PARTITION_METADATA_FILE) for path in directories
        )
        # A broker that ran in between may have given the topic another ID.
        topic_id = next((present_id for present_id in present_ids if present_id is not None), topic.id)
        data = metadata.format_partition_metadata(topic_id)
        for partition, directory in enumerate(directories):
            self.directory.step("mkdir", directory)
            directory.mkdir(fsync.DIRECTORY_MODE, exist_ok=True)
            if metadata.read_partition_metadata(directory / metadata.PARTITION_METADATA_FILE) is None:
                self.directory.replace(f"{directory.name}/{metadata.PARTITION_METADATA_FILE}", data)
            if partition not in filled and not any(directory.glob("*" + names.LOG_SUFFIX)):
                log = directory / (names.segment_name(0) + names.LOG_SUFFIX)
                self.directory.step("empty segment", log)
                for suffix in (*INDEX_SUFFIXES, names.LOG_SUFFIX):  # existing files stay
                    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
                    os.close(os.open(log.with_suffix(suffix), flags, regular_file.FILE_MODE))
                self.directory.fsync_directory(directory)
        self.directory.fsync_directory(self.log_dir)

    def publish_segment(self, segment: PlannedSegment) -> None:
        staged, target = self._staged_log(segment), self._published_log(segment)
        replaces_empty = target.exists()
        if replaces_empty:
            if target.stat().st_size:
                raise self.conflict(segment, "another process wrote to the log without the directory's lock")
            self.directory.delete([segment.file(suffix) for suffix in INDEX_SUFFIXES])
            self.sync_published(segment)
            self.directory.rename(staged, target)
            self.sync_published(segment)
        for suffix in INDEX_SUFFIXES:
            self.directory.rename(staged.with_suffix(suffix), target.with_suffix(suffix))
        if not replaces_empty:
            self.directory.rename(staged, target)

    def sync_published(self, segment: PlannedSegment) -> None:
        self.directory.fsync_directory(self.log_dir / segment.directory)

    def end_publish(self, record: CommitRecord) -> None:
        """Flush all moved files, then write producer snapshots and recovery points as a broker does."""
        by_partition = record.segments_by_partition()
        snapshots: list[Path] = []

        def written() -> Iterator[Path]:
            for segments in by_partition.values():
                data = self._snapshot_at(segments[0])
                if data is not None:
                    # The records here have no producers, so the state at the new end is that at the old one.
                    stem = names.segment_name(segments[-1].next_offset)
                    path = self.log_dir / segments[0].directory / (stem + names.PRODUCER_SNAPSHOT_SUFFIX)
                    aside = path.with_name(path.name + atomic_file.TEMPORARY_SUFFIX)
                    self.directory.step("write", path)
                    with descriptor(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
                        write_all(fd, data)
                    snapshots.append(path)
                    yield aside

        self._flush(written())
        for path in snapshots:
            self.directory.rename(path.with_name(path.name + atomic_file.TEMPORARY_SUFFIX), path)
        self._flush([self.log_dir, *(self.log_dir / segments[0].directory for segments in by_partition.values())])
        flushed = {key: segments[-1].next_offset for key, segments in by_partition.items()}
        created = {(topic.name, n): 0 for topic in record.topics for n in range(topic.partitions)}
        try:
            points = checkpoint.read_offset_checkpoint(self.log_dir / checkpoint.RECOVERY_POINT_CHECKPOINT)
        except (errors.CorruptFile, errors.UnsupportedFormat) as error:
            _log.warning("%s; the file is not changed, and a broker will check the logs from their beginning", error)
            return
        # All records below these offsets are on disk, so a broker need not scan them after a crash.
        raised = {key: offset for key, offset in (created | flushed).items() if offset > points.get(key, -1)}
        if raised:
            data = checkpoint.format_offset_checkpoint(points | raised)
            self.directory.replace(checkpoint.RECOVERY_POINT_CHECKPOINT, data)

    def _snapshot_at(self, segment: PlannedSegment) -> bytes | None:
        """Return the producer snapshot at the base offset of a segment; None if there is no valid one."""
        if segment.base_offset == 0:
            return format_producer_snapshot([])
        try:
            path = self.log_dir / segment.file(names.PRODUCER_SNAPSHOT_SUFFIX)
            return format_producer_snapshot(read_producer_snapshot(path))
        except (OSError, errors.KafkalogError):
            return None  # a broker drops such a snapshot too, and reads the log instead
