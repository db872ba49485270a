"""Commit of a write: all of its staged records become part of the log, or none does.

1. On a disk, lock the directory. Read the last commit, and complete it if a dead writer left it unfinished. A
   micro-batch that is in the log already is not written again.
2. Find the end of each partition's log, which is where the staged records are appended. On a disk, assign the offsets
   of the staged files, write their indexes, and flush them.
3. Put a record with the next number into the commit log (commit_log) unless that number exists. The record names all
   staged files, their partitions and offsets, and the micro-batch. The write is committed by this step. In a bucket, a
   writer whose number exists already begins again at step 1.
4. Publish the segments (segment_target).
5. Mark the commit as done. Remove the job's staged files, and those of dead jobs.

A crash before step 3 leaves staged files that are not part of the log. After a crash behind step 3 the next writer
completes the commit.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from kafkalog_spark import errors
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, format_leader_epochs
from kafkalog_spark.sink import commit_plan
from kafkalog_spark.sink.commit_log import CommitLog, LastCommit, unfinished
from kafkalog_spark.sink.commit_plan import TaskManifest
from kafkalog_spark.sink.commit_record import CommitRecord, PlannedSegment
from kafkalog_spark.sink.log_directory import LogDirectory
from kafkalog_spark.sink.segment_target import SegmentTarget

_log = logging.getLogger(__name__)

_SMALL_BYTES = 8 << 20
"""Partitions whose segments are at most this large are published in parallel, others one after the other. So the driver
holds at most SegmentTarget.parallel times _SMALL_BYTES, or twice BucketDirectory.max_single_put_bytes."""


@dataclass(frozen=True)
class Committer:
    """Commits and aborts of one log directory.

    Attributes:
        log: The commit log of the directory.
        target: Stages and publishes the segments.
        now_s: Returns seconds since 1970.
        tries: Tries of a commit if other writers commit first. If all fail, the bucket has too many writers.

    Raises:
        NotALogDirectory: If the system or the store refuses a request.
        CorruptFile, UnsupportedFormat: If a commit record cannot be read.
        WriteUnfinished: If a committed write cannot be completed.
        OSError: By `topics` only.
    """

    log: CommitLog
    target: SegmentTarget
    now_s: Callable[[], float] = time.time
    tries: int = 20

    @property
    def directory(self) -> LogDirectory:
        return self.target.directory

    def topics(self) -> dict[str, list[int]]:
        """Return the partitions of each topic, without holding the directory's locks.

        If another sink is creating a topic, all of its future partitions are included, even if their directories do not
        exist yet. Raises as CommitLog.read.
        """
        if self.target.lists_new_topics_whole:
            return self.target.topics()
        while True:
            last, last_record = self.log.last()
            topics = self.target.topics()
            if self.log.look() == last:
                break  # otherwise a commit began or ended meanwhile, and the listing may show a part of its topics
        for topic in () if last.done else last_record.topics:
            topics[topic.name] = sorted({*topics.get(topic.name, ()), *range(topic.partitions)})
        return topics

    def open_job(self, stream: str | None) -> str:
        """Check the directory, complete the commit of a dead writer, begin a job and return its ID.

        Args:
            stream: See jobs.Job.

        Raises:
            KafkalogError: As SegmentTarget.check. No file was changed then.
        """
        job = uuid.uuid4().hex
        with self._explained_os_errors():
            self.target.check()
            if self.recover().number < 0:
                self.log.expect_put_if_absent()
            self.target.begin_job(job, stream)
        return job

    def commit(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None = None, batch: int = -1
    ) -> bool:
        """Make the tasks' staged files part of the log. On return all of them are on disk.

        After any error except WriteUnfinished no record is visible, and `abort` removes the staged files.

        Args:
            job: ID of the write.
            tasks: Results of the tasks.
            segment_bytes: Largest size of a segment.
            query: ID of a streaming query; None for a batch.
            batch: Number of the micro-batch of that query.

        Returns:
            False if that micro-batch of `query` was in the log already.

        Raises:
            LogDirLocked, BrokerOwnsDirectory: If another sink or a broker uses the directory.
            JobEnded: If staged files are gone.
            UnknownPartition: If a topic was created or enlarged meanwhile.
            CorruptLog: If a log can only be repaired by a broker.
        """
        with self._explained_os_errors(), self.target.locked():
            committed = self._put_record(job, tasks, segment_bytes, query, batch)
            if committed is not None:
                self._complete(*committed)
            try:
                self.target.sweep(job)
                if committed is not None:
                    self.log.remove_superseded(committed[0])
            except OSError as error:  # the next sink removes them
                _log.warning("the write is complete, but its staged files could not all be removed: %s", error)
            return committed is not None or query is None

    def abort(self, jobs: Iterable[str], *, tried: bool = True) -> None:
        """Remove the jobs' staged files. If one of the jobs was committed, complete that commit first.

        Args:
            jobs: IDs of the jobs.
            tried: True if a put of their commit record may have been sent without a response. If such a put may take
                effect later, the next number is occupied before any file is removed.
        """
        with self._explained_os_errors():
            jobs = [job for job in jobs if self.target.staged(job)]
            if not jobs:
                return
            last, last_record = self.log.last()
            if self.log.late_puts and tried:
                last, last_record = self._finish_last()
                while not self.log.take_number(last.number + 1, last_record):
                    last, last_record = self._finish_last()
            elif not last.done and last_record.job in jobs:
                with self.target.locked():
                    self._finish_last()
            self.target.end_jobs(jobs)

    def end(self, job: str, stream: str | None) -> None:
        """Remove, after a micro-batch, the writer's own job and the jobs of the same stream that no task reported."""
        self.abort(self.target.jobs_of_stream(job, stream), tried=False)

    def recover(self) -> LastCommit:
        """Complete a dead writer's commit, remove the staged files of dead jobs, and return the last commit."""
        with self._explained_os_errors():
            last, _ = self.log.last()  # an unreadable record is reported before any row is encoded
            if (last.done or last.number < 0) and not self.target.dead_jobs():
                return last
            with self.target.locked():
                last, _ = self._finish_last()
                self.target.end_jobs(self.target.dead_jobs())
            return last

    def _put_record(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None, batch: int
    ) -> tuple[int, CommitRecord] | None:
        """Put the record of this commit, and return its number and the record.

        Returns:
            None if the micro-batch is in the log already, or if a batch has no rows.
        """
        target = self.target
        for _ in range(self.tries):
            began = self.now_s()
            last, last_record = self._finish_last()
            if query is not None and last_record.queries.get(query, -1) >= batch:  # the same micro-batch or a later one
                text = "%s: micro-batch %d of query %s is in the log already and is not written again"
                _log.warning(text, self.directory.path(), batch, query)
                return None
            existing = target.topics()
            planned, topics = commit_plan.plan_segments(tasks, existing, segment_bytes, target.join_bytes)
            if not planned and query is None:
                return None
            ends = target.ends(dict.fromkeys(segment.key for segment in planned), existing, last_record)
            queries = dict(last_record.queries) if query is None else {**last_record.queries, query: batch}
            segments = commit_plan.assign_offsets(planned, ends)
            record = CommitRecord(job=job, queries=queries, topics=topics, segments=segments)
            self.log.check_condition(last, last_record)
            target.prepare(record)
            if self.now_s() - began > self.log.look_seconds:
                continue  # `last` may be outdated
            if self.log.put(last.number + 1, record, last_record):
                return last.number + 1, record
        raise errors.LogDirLocked(
            f"other sinks committed {self.tries} times while this sink tried to commit",
            path=self.directory.path(),
            hint="nothing was written: run it again with fewer writers on this directory, or with a longer trigger",
        )

    def _complete(self, number: int, record: CommitRecord) -> None:
        try:
            try:
                self._publish(record)
            except FileNotFoundError:
                last = self.log.look()
                if last.number == number and not last.done:
                    raise
                return  # another writer has completed this commit and removed the staged objects
            self.log.mark_done(number)
        except (OSError, errors.KafkalogError) as error:
            raise unfinished(self.directory, error) from error

    def _finish_last(self) -> tuple[LastCommit, CommitRecord]:
        """Complete the last commit if its writer left it unfinished, and return it."""
        last, last_record = self.log.last()
        if last.done or last.number < 0:
            return last, last_record
        number = last.number
        try:
            if last_record.job is not None:
                number, last_record = self._roll_forward(number, last_record)
            self.log.mark_done(number)
            self.target.end_jobs([last_record.job] if last_record.job is not None else [])
        except (OSError, errors.KafkalogError) as error:
            raise unfinished(self.directory, error) from error
        return LastCommit(number, True), last_record

    def _roll_forward(self, number: int, record: CommitRecord) -> tuple[int, CommitRecord]:
        """Publish the rest of a commit. If its offsets have to change, put it again under the next number.

        Returns:
            The number and the record of the published commit.
        """
        try:
            remaining = self.target.remaining(record)
            if not set(remaining.segments) <= set(record.segments):
                if not self.log.put(number + 1, remaining, record):
                    raise errors.LogDirLocked("another sink committed meanwhile", path=self.directory.path())
                number, record = number + 1, remaining
            self._publish(remaining)
        except FileNotFoundError as error:
            last = self.log.look()
            if last.number > number or last.done:
                return number, record  # the commit's own writer was still running, and has completed it
            raise errors.CorruptLog(
                f"commit {number} needs a staged file that is gone",
                path=str(error.filename or self.directory.path()),
                hint=f"restore the file; or remove {self.log.record_name(number)}, which gives up the commit's records",
            ) from error
        _log.warning("%s: completed commit %d of a dead writer (job %s)", self.directory.path(), number, record.job)
        return number, record

    def _publish(self, record: CommitRecord) -> None:
        """Publish the segments of a commit. Idempotent.

        Raises:
            FileNotFoundError: If a staged file is gone: lost, or removed by another writer that completed the commit.
            OSError, CorruptLog: As SegmentTarget.publish_segment.
        """
        target, by_partition = self.target, record.segments_by_partition()
        filled = {topic.name: [key[1] for key in by_partition if key[0] == topic.name] for topic in record.topics}
        target.run([partial(target.make_topic, topic, filled[topic.name]) for topic in record.topics])
        large = {key for key, own in by_partition.items() if max(segment.size for segment in own) > _SMALL_BYTES}
        target.run([partial(self._publish_partition, own) for key, own in by_partition.items() if key not in large])
        for key in by_partition:
            if key in large:
                self._publish_partition(by_partition[key])
        target.end_publish(record)

    def _publish_partition(self, segments: Sequence[PlannedSegment]) -> None:
        first = segments[0]
        if first.epochs is not None:
            self.directory.replace(f"{first.directory}/{LEADER_EPOCH_CHECKPOINT}", format_leader_epochs(first.epochs))
        for number, segment in enumerate(segments):
            if number:
                self.target.sync_published(segments[number - 1])
            self.target.publish_segment(segment)

    @contextmanager
    def _explained_os_errors(self) -> Iterator[None]:
        """Raise an OSError as the NotALogDirectory that names the directory and its requirements."""
        try:
            yield
        except OSError as error:
            raise self.directory.unwritable(error) from error
