"""A write's end: everything it staged becomes part of the log, or nothing.

1. Both locks of the directory. A commit that was decided and not finished is finished first.
2. The staged files get their offsets, where the logs end now. They, and their indexes, are flushed.
3. `kafkalog.sink.json` is replaced: it names every file and its place, and the micro-batch. THIS is the commit.
4. The files are moved to their places, `.log` last.
5. `kafkalog.sink.json` is replaced again, with nothing pending; what is left of the job is removed.

A crash before 3 leaves staged files that nobody looks at, and the next sink removes them. A crash after 3 leaves work
that the next sink finishes. When a broker has written to a log in between, what is left goes after its records.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark.errors import CorruptFile, CorruptLog, KafkalogError, UnsupportedFormat, WriteUnfinished
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    format_leader_epochs,
    format_offset_checkpoint,
    read_offset_checkpoint,
)
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    format_partition_metadata,
    new_uuid,
    read_partition_metadata,
)
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.sink import staging
from kafkalog_spark.sink.commit_plan import TopicPartition, lay_out, place, place_again
from kafkalog_spark.sink.disk import Disk, Patience
from kafkalog_spark.sink.local_target import (
    COMMIT_WAIT_SECONDS,
    EMPTY_END,
    PartitionEnd,
    find_topics,
    settle_partition,
    sink_lock,
    unwritable,
)
from kafkalog_spark.sink.sink_record import (
    RECORD_FILE,
    NewTopic,
    PendingCommit,
    PlannedSegment,
    SinkRecord,
    format_record,
    read_record,
)
from kafkalog_spark.sink.staging import INDEX_SUFFIXES, TaskManifest

# The second half of a commit: what is decided is brought into its places, by whoever comes next, twice if need be.
#
# Of each segment the .log is moved last, so that what a broker or reader meets in between is a whole log: an index
# without a .log is ignored, or removed by a broker and made again here. Only where the log ends with an empty
# segment of the same base offset is the .log moved first, without indexes: an index that speaks of records that are
# not there would be taken for that segment's.


@dataclass(frozen=True)
class Publisher:
    """Moves the staged files of one commit. Called with both locks held."""

    log_dir: Path
    disk: Disk

    def publish(self, pending: PendingCommit, ends: Mapping[TopicPartition, PartitionEnd]) -> None:
        """Move every staged file of `pending` that is left. ends: where those partitions' logs end.

        On return all is on disk. Raises OSError, CorruptLog when a segment is in the way; doing it again goes on.
        """
        by_partition: dict[TopicPartition, list[PlannedSegment]] = {}
        for segment in pending.segments:
            by_partition.setdefault((segment.topic, segment.partition), []).append(segment)
        for topic in pending.topics:
            self._make_topic(topic, [partition for name, partition in by_partition if name == topic.name])
        written = [self.log_dir]
        for key, segments in by_partition.items():
            written += self._publish_partition(key, segments, ends[key])
        self.disk.flush(written)
        flushed = {key: segments[-1].next_offset for key, segments in by_partition.items()}
        created = {(topic.name, n): 0 for topic in pending.topics for n in range(topic.partitions)}
        self._raise_recovery_points(created | flushed)

    def finish_moves(self, segments: Iterable[PlannedSegment]) -> None:
        """After a crash: of segments whose .log has been moved, the indexes that have not, and the directories."""
        for segment in segments:
            staged, target = self._paths(segment)
            for suffix in INDEX_SUFFIXES:
                if staged.with_suffix(suffix).exists() and not target.with_suffix(suffix).exists():
                    self.disk.rename(staged.with_suffix(suffix), target.with_suffix(suffix))
        self.disk.flush(sorted({self._paths(segment)[1].parent for segment in segments}))

    def _paths(self, segment: PlannedSegment) -> tuple[Path, Path]:
        """Where the .log is staged, and its place."""
        directory = self.log_dir / f"{segment.topic}-{segment.partition}"
        name = names.segment_name(segment.base_offset) + names.LOG_SUFFIX
        return self.log_dir / segment.file, directory / name

    def _make_topic(self, topic: NewTopic, filled: Collection[int]) -> None:
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

    def _publish_partition(self, key: TopicPartition, segments: list[PlannedSegment], end: PartitionEnd) -> list[Path]:
        """Returns what is to be flushed."""
        directory = self.log_dir / f"{key[0]}-{key[1]}"
        if end.epochs is not None:
            self.disk.replace_file(directory / LEADER_EPOCH_CHECKPOINT, format_leader_epochs(end.epochs))
        for segment in segments:
            self._move(segment)
        if end.snapshot is not None:
            # The records here have no producers, so the state at the new end is that at the old one.
            # A snapshot that a crash of the machine empties is dropped by brokers, and made again from the log.
            name = names.segment_name(segments[-1].next_offset) + names.PRODUCER_SNAPSHOT_SUFFIX
            self.disk.replace_file(directory / name, end.snapshot, sync=False)
            return [directory / name, directory]
        return [directory]

    def _move(self, segment: PlannedSegment) -> None:
        staged, target = self._paths(segment)
        if not target.exists():
            for suffix in INDEX_SUFFIXES:
                self.disk.rename(staged.with_suffix(suffix), target.with_suffix(suffix))
            self.disk.rename(staged, target)
            return
        if target.stat().st_size:
            raise CorruptLog(
                f"there is a segment where offset {segment.base_offset} was to be written",
                topic_partition=f"{segment.topic}-{segment.partition}",
                path=str(target),
                hint="somebody wrote to the log without the directory's lock",
            )
        for suffix in INDEX_SUFFIXES:
            self.disk.unlink(target.with_suffix(suffix))
        self.disk.rename(staged, target)
        for suffix in INDEX_SUFFIXES:
            self.disk.rename(staged.with_suffix(suffix), target.with_suffix(suffix))

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


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Committer:
    """Commits and aborts of one log directory. disk, now_s, wait_s: the file system, the clock and the longest wait for
    another sink, for tests."""

    log_dir: Path
    disk: Disk = Disk()  # noqa: RUF009  it has no state
    now_s: Callable[[], float] = time.time
    wait_s: float = COMMIT_WAIT_SECONDS

    def commit(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None = None, batch: int = -1
    ) -> bool:
        """Make what the tasks staged part of the log; False when that micro-batch of `query` was there already.

        On return everything is on disk. Raises WriteUnfinished when the write is decided and the next write will bring
        it to its end; after any other error nothing is visible, and `abort` cleans up. LogDirLocked,
        BrokerOwnsDirectory, UnknownPartition, CorruptLog, NotALogDirectory.
        """
        with self._locked():
            record = self._finish_pending(read_record(self.log_dir))
            fresh = query is None or not record.has_batch(query, batch)
            if fresh:
                self._commit(record, job, tasks, segment_bytes, query, batch)
            else:
                _log.warning(
                    "micro-batch %d of query %s is in %s already; not written again", batch, query, self.log_dir
                )
            try:
                self._end_job(job)
                self._sweep()
            except OSError as error:  # the next sink removes it
                _log.warning("the write is complete, but its staged files could not all be removed: %s", error)
            return fresh

    def abort(self, job: str) -> None:
        """Remove what the job staged, unless it was decided: then finish it. Raises OSError, WriteUnfinished."""
        self.abort_all([job])

    def abort_all(self, jobs: Iterable[str]) -> None:
        """`abort` for several jobs. A log directory that has nothing else is removed."""
        if not self.log_dir.exists():
            return
        made_directory = False
        for job in jobs:
            if not self._is_pending(job):
                made_directory |= staging.read_job(self.log_dir, job).made_directory
                self._end_job(job)
        if made_directory:
            with suppress(OSError):  # somebody else has begun to use it
                self.log_dir.rmdir()

    def recover(self) -> None:
        """Finish what a dead writer had decided, and remove what it had only staged."""
        listing = os.listdir(self.log_dir)
        if RECORD_FILE not in listing and not staging.jobs_in(listing):
            return
        if read_record(self.log_dir).pending is None and not self._dead_jobs():
            return
        with self._locked():
            self._finish_pending(read_record(self.log_dir))
            self._sweep()

    def end_stream(self, stream: str) -> None:
        """Abort the jobs of a stream whose micro-batch failed before a task could report its job."""
        listing = staging.jobs_in(os.listdir(self.log_dir))
        self.abort_all([job for job in listing if staging.read_job(self.log_dir, job).stream == stream])

    # ---- the commit

    def _commit(
        self,
        record: SinkRecord,
        job: str,
        tasks: Sequence[TaskManifest],
        segment_bytes: int,
        query: str | None,
        batch: int,
    ) -> None:
        existing = find_topics(self.log_dir)
        ids = {topic: new_uuid() for task in tasks for topic in task.partitions if topic not in existing}
        layout = lay_out(job, tasks, existing, segment_bytes, ids)
        if not layout.pieces and query is None:
            return
        ends = self._ends(layout.pieces, existing)
        segments = place(layout.pieces, {key: end.next_offset for key, end in ends.items()})
        self._number(segments, ends, {piece.file: piece.sources for own in layout.pieces.values() for piece in own})
        pending = PendingCommit(job, layout.topics, tuple(segments))
        self.disk.fsync_directory(self.log_dir)
        decided = record.decided(pending, query, batch)
        self._decide(decided)
        try:
            Publisher(self.log_dir, self.disk).publish(pending, ends)
            self._write(decided.done())
        except (OSError, KafkalogError) as error:
            raise _unfinished(self.log_dir, error) from error

    def _decide(self, decided: SinkRecord) -> None:
        """The commit. When its last fsync fails, the file may say so already: then it is decided."""
        try:
            self._write(decided)
        except OSError as error:
            if read_record(self.log_dir) == decided:
                raise _unfinished(self.log_dir, error) from error
            raise

    def _number(
        self,
        segments: Iterable[PlannedSegment],
        ends: Mapping[TopicPartition, PartitionEnd],
        sources: Mapping[str, tuple[str, ...]],
    ) -> None:
        """Give the staged files their offsets and indexes; all is on disk on return. sources: of each file, what it is
        to be joined from; itself alone, or missing, when it is there."""

        def numbered() -> Iterator[Path]:
            for segment in segments:
                log = self.log_dir / segment.file
                pieces = sources.get(segment.file, (segment.file,))
                if pieces != (segment.file,):
                    self.disk.join([self.log_dir / piece for piece in pieces], log)
                self._restamp(segment, ends)
                yield from (log, *(log.with_suffix(suffix) for suffix in staging.INDEX_SUFFIXES))

        self.disk.flush(numbered())  # one file is written to the disk while the next gets its offsets

    def _restamp(self, segment: PlannedSegment, ends: Mapping[TopicPartition, PartitionEnd]) -> None:
        epoch = ends[segment.topic, segment.partition].leader_epoch
        found = self.disk.restamp(self.log_dir / segment.file, segment.base_offset, epoch)
        if found != segment.next_offset:
            raise KafkalogError(
                f"a staged file holds {found - segment.base_offset} records, its task reported {segment.records}",
                path=str(self.log_dir / segment.file),
                hint="somebody else changed it; nothing was written, run the write again",
            )

    def _ends(
        self, keys: Iterable[TopicPartition], existing: Mapping[str, list[int]]
    ) -> dict[TopicPartition, PartitionEnd]:
        clean = (self.log_dir / names.CLEAN_SHUTDOWN_FILE).exists()
        ends = {}
        for topic, partition in keys:
            if partition in existing.get(topic, ()):
                directory = str(self.log_dir / f"{topic}-{partition}")
                ends[topic, partition] = settle_partition(PartitionPlace(topic, partition, directory), clean=clean)
            else:
                ends[topic, partition] = EMPTY_END
        return ends

    # ---- what was left

    def _finish_pending(self, record: SinkRecord) -> SinkRecord:
        """Bring a decided commit to its end; the record without it."""
        pending = record.pending
        if pending is None:
            return record
        try:
            existing = find_topics(self.log_dir)
            created = {topic.name for topic in pending.topics}
            publisher = Publisher(self.log_dir, self.disk)
            left = [segment for segment in pending.segments if (self.log_dir / segment.file).exists()]
            publisher.finish_moves([s for s in pending.segments if s not in left and self._is_here(s, existing)])
            kept = [s for s in left if s.topic in created or self._is_here(s, existing)]
            for segment in left:
                if segment not in kept:
                    _log.warning(
                        "%s-%d was deleted: %d records that were committed to it are gone with it",
                        segment.topic, segment.partition, segment.records,
                    )  # fmt: skip
            ends = self._ends({(segment.topic, segment.partition) for segment in kept}, existing)
            placed = place_again(kept, {key: end.next_offset for key, end in ends.items()})
            again = PendingCommit(pending.job, pending.topics, tuple(placed))
            record = SinkRecord(record.queries, again)
            self._number(placed, ends, {})  # the indexes may have been removed by a broker, the offsets may be others
            self._write(record)
            publisher.publish(again, ends)
            self._end_job(pending.job)
            self._write(record.done())
        except (OSError, KafkalogError) as error:
            raise _unfinished(self.log_dir, error) from error
        _log.warning("finished a write to %s that was decided and not completed (job %s)", self.log_dir, pending.job)
        return record.done()

    @staticmethod
    def _is_here(segment: PlannedSegment, existing: Mapping[str, list[int]]) -> bool:
        return segment.partition in existing.get(segment.topic, ())

    def _is_pending(self, job: str) -> bool:
        """Whether the job was decided; then it is finished here. A directory that cannot be locked now has no decided
        job of ours unless the file says so."""
        pending = read_record(self.log_dir).pending
        if pending is None or pending.job != job:
            return False
        with self._locked():
            self._finish_pending(read_record(self.log_dir))
        return True

    def _dead_jobs(self) -> list[str]:
        now = self.now_s()
        jobs = staging.jobs_in(os.listdir(self.log_dir))
        return [
            job
            for job, files in jobs.items()
            if staging.is_dead(self.log_dir, staging.read_job(self.log_dir, job), files, now)
        ]

    def _sweep(self) -> None:
        for job in self._dead_jobs():
            _log.warning("removed what a writer that has ended left in %s (job %s)", self.log_dir, job)
            self._end_job(job)

    def _end_job(self, job: str) -> None:
        """Remove the .job file, then everything the job staged."""
        self.disk.unlink(self.log_dir / staging.job_file(job))
        for name in staging.jobs_in(os.listdir(self.log_dir)).get(job, ()):
            self.disk.unlink(self.log_dir / name)

    def _write(self, record: SinkRecord) -> None:
        self.disk.replace_file(self.log_dir / RECORD_FILE, format_record(record))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with sink_lock(self.log_dir, Patience(self.wait_s)):
                yield
        except OSError as error:
            raise unwritable(self.log_dir, error) from error


def _unfinished(log_dir: Path, error: Exception) -> KafkalogError:
    return WriteUnfinished(
        f"the write is decided, but not all of it is in its place yet: {error}",
        path=str(log_dir),
        hint="do not run it again: the next write to this directory finishes it, when the cause is gone",
    )
