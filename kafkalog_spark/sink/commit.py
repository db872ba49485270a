"""Commit of a write: all of its staged records become part of the log, or none does.

1. On a disk, lock the directory. Read the last commit, and complete it if a dead writer left it unfinished
   (unfinished_commit). A micro-batch that is in the log already is not written again.
2. Find the end of each partition's log, which is where the staged records are appended. On a disk, assign the offsets
   of the staged files, write their indexes, and flush them.
3. Put a record with the next number into the commit log (commit_log) unless that number exists. The record names all
   staged files, their partitions and offsets, and the micro-batch. The write is committed by this step. In a bucket, a
   writer whose number exists already begins again at step 1.
4. Publish the segments (segment_publisher).
5. Mark the commit as done. Remove the job's staged files, and those of dead jobs.

A crash before step 3 leaves staged files that are not part of the log. After a crash behind step 3 the next writer
completes the commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kafkalog_spark import errors
from kafkalog_spark.sink.commit_log import unfinished
from kafkalog_spark.sink.commit_plan import plan_segments
from kafkalog_spark.sink.commit_record import CommitRecord
from kafkalog_spark.sink.log_directory import LogDirectory
from kafkalog_spark.sink.offset_assignment import assign_offsets
from kafkalog_spark.sink.task_manifest import TaskManifest
from kafkalog_spark.sink.unfinished_commit import finish_last
from kafkalog_spark.sink.write_target import WriteTarget

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Committer:
    """Commits and aborts of one log directory.

    Attributes:
        target: The log directory.
        now_s: Returns seconds since 1970.
        tries: Tries of a commit if other writers commit first. If all fail, the bucket has too many writers.

    Raises:
        NotALogDirectory: If the system or the store refuses a request.
        CorruptFile, UnsupportedFormat: If a commit record cannot be read.
        WriteUnfinished: If a committed write cannot be completed.
    """

    target: WriteTarget
    now_s: Callable[[], float] = time.time
    tries: int = 20

    @property
    def directory(self) -> LogDirectory:
        return self.target.directory

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
        with self.directory.explained_os_errors(), self.target.locked():
            committed = self._put_record(job, tasks, segment_bytes, query, batch)
            if committed is not None:
                self._complete(*committed)
            try:
                self.target.jobs.sweep(job)
                if committed is not None:
                    self.target.log.remove_superseded(committed[0])
            except OSError as error:  # the next sink removes them
                _log.warning("the write is complete, but its staged files could not all be removed: %s", error)
            return committed is not None or query is None

    def abort(self, jobs: Iterable[str], *, may_have_committed: bool = True) -> None:
        """Remove the jobs' staged files. If one of the jobs was committed, complete that commit first.

        Args:
            jobs: IDs of the jobs.
            may_have_committed: True if a put of their commit record may have been sent without a response. If such a
                put may take effect later, the next number is occupied before any file is removed.
        """
        with self.directory.explained_os_errors():
            jobs = [job for job in jobs if self.target.jobs.staged(job)]
            if not jobs:
                return
            last, last_record = self.target.log.last()
            if self.target.log.late_puts and may_have_committed:
                last, last_record = finish_last(self.target)
                while not self.target.log.take_number(last.number + 1, last_record):
                    last, last_record = finish_last(self.target)
            elif not last.done and last_record.job in jobs:
                with self.target.locked():
                    finish_last(self.target)
            self.target.jobs.end_jobs(jobs)

    def end_unused_jobs(self, job: str, stream: str | None) -> None:
        """Remove, after a micro-batch, the staged files of jobs that no task reported.

        Args:
            job: Job of the writer that committed or aborted the micro-batch.
            stream: Key of the stream (see jobs.Job); other jobs with this key end, too.
        """
        self.abort(self.target.jobs.jobs_of_stream(job, stream), may_have_committed=False)

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
            last, last_record = finish_last(target)
            if query is not None and last_record.queries.get(query, -1) >= batch:  # the same micro-batch or a later one
                text = "%s: micro-batch %d of query %s is in the log already and is not written again"
                _log.warning(text, self.directory.path(), batch, query)
                return None
            existing = target.directory.topics()
            planned, topics = plan_segments(tasks, existing, segment_bytes, target.join_bytes)
            if not planned and query is None:
                return None
            ends = target.log_ends.find(dict.fromkeys(segment.key for segment in planned), existing, last_record)
            queries = dict(last_record.queries) if query is None else {**last_record.queries, query: batch}
            segments = assign_offsets(planned, ends)
            record = CommitRecord(job=job, queries=queries, topics=topics, segments=segments)
            target.log.check_condition(last, last_record)
            target.staged.prepare(record)
            if self.now_s() - began > target.log.look_seconds:
                continue  # `last` may be outdated
            if target.log.put(last.number + 1, record, last_record):
                return last.number + 1, record
        raise errors.LogDirLocked(
            f"other sinks committed {self.tries} times while this sink tried to commit",
            path=self.directory.path(),
            hint="nothing was written: run it again with fewer writers on this directory, or with a longer trigger",
        )

    def _complete(self, number: int, record: CommitRecord) -> None:
        try:
            try:
                self.target.publisher.publish(record)
            except FileNotFoundError:
                last = self.target.log.look()
                if last.number == number and not last.done:
                    raise
                return  # another writer has completed this commit and removed the staged objects
            self.target.log.mark_done(number)
        except (OSError, errors.KafkalogError) as error:
            raise unfinished(self.directory, error) from error
