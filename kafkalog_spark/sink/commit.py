"""Commit of a write: everything it staged becomes part of the log, or nothing does; on a disk and in a bucket.

1. On a disk the locks of the directory. The last commit is looked at; one that a dead writer left unfinished is
   completed first. A micro-batch that is in the log is not written again.
2. The end of each partition's log is found: there the staged records go on. On a disk the staged files get their
   offsets and indexes, and are flushed.
3. The record of the next number is put, if there is none (commit_log). It names all that was staged, its place, and the
   micro-batch. THIS is the commit. Whoever loses, in a bucket, begins again at 1.
4. The segments are brought to their places.
5. The commit is marked done; what the job staged is removed, and what dead jobs left.

A crash before 3 leaves staged files that nobody looks at. A crash after 3 leaves work that the next writer completes.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from kafkalog_spark.errors import CorruptLog, KafkalogError, LogDirLocked
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, format_leader_epochs
from kafkalog_spark.format.partition_metadata import new_uuid
from kafkalog_spark.sink.commit_log import CommitLog, Look, new_record_id, unfinished
from kafkalog_spark.sink.commit_plan import CommitRecord, PlannedSegment, TaskManifest, assign_offsets, plan_segments
from kafkalog_spark.sink.medium import Medium

_log = logging.getLogger(__name__)

MOST_TRIES = 20
"""Commits of others that a commit gives way to, each complete when it plans anew. So many in a row are a bucket with
more writers than it can take."""

LOOK_SECONDS = 3600
"""A writer without a lock that has looked at the commits longer ago looks again before it puts one: records are kept
for longer than that (medium_bucket.KEPT_SECONDS)."""


def publish(medium: Medium, record: CommitRecord) -> None:
    """Bring the segments of a commit to their places. Doing it again goes on.

    Raises OSError (FileNotFoundError: somebody else has made all of it and removed what was staged, or that is lost),
    CorruptLog where another segment is in the way.
    """
    by_partition = record.by_partition()
    filled = {}
    for topic in record.topics:
        filled[topic.name] = [partition for name, partition in by_partition if name == topic.name]
    medium.each([(0, partial(medium.make_topic, topic, filled[topic.name])) for topic in record.topics])
    medium.each(
        [
            (max(segment.size for segment in segments), partial(_publish_partition, medium, segments))
            for segments in by_partition.values()
        ]
    )
    medium.end_publish(record)


def _publish_partition(medium: Medium, segments: Sequence[PlannedSegment]) -> None:
    first = segments[0]
    if first.epochs is not None:
        medium.replace(f"{first.directory}/{LEADER_EPOCH_CHECKPOINT}", format_leader_epochs(first.epochs))
    for segment in segments:
        medium.publish_segment(segment)


@dataclass(frozen=True)
class Committer:
    """Commits and aborts of one log directory. now_s: the clock, for tests.

    All methods raise NotALogDirectory for what the operating system or store refuses, CorruptFile and UnsupportedFormat
    for a record that cannot be read, WriteUnfinished when a decided write cannot be completed now.
    """

    medium: Medium
    now_s: Callable[[], float] = time.time
    tries: int = MOST_TRIES

    @property
    def _commits(self) -> CommitLog:
        return CommitLog(self.medium)

    def open_job(self, stream: str | None) -> str:
        """Check the directory, finish what a dead writer left, and begin a job; its id. stream: see local_jobs.Job.

        Raises NotALogDirectory, BrokerOwnsDirectory, UnsupportedFormat, CorruptFile; then nothing has changed.
        """
        job = uuid.uuid4().hex
        with self._messages():
            self.medium.check_target()
            made = self.medium.make_directory()
            if not made and self.recover().number < 0:
                self.medium.expect_put_if_absent()
            self.medium.begin_job(job, stream, made_directory=made)
        return job

    def commit(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None = None, batch: int = -1
    ) -> bool:
        """Make what the tasks staged part of the log; False when that micro-batch of `query` was there already.

        On return everything is on disk. Raises WriteUnfinished when the write is decided and the next write will bring
        it to its end; after any other error nothing is visible, and `abort` cleans up. LogDirLocked, JobEnded,
        BrokerOwnsDirectory, UnknownPartition, CorruptLog, NotALogDirectory.
        """
        with self._messages(), self.medium.locked():
            decided, fresh = self._decide(job, tasks, segment_bytes, query, batch)
            if decided is not None:
                self._complete(*decided)
            try:
                self.medium.sweep(job)
                if decided is not None:
                    self._commits.prune(decided[0])
            except OSError as error:  # the next sink removes it
                _log.warning("the write is complete, but its staged files could not all be removed: %s", error)
            return fresh

    def abort(self, jobs: Iterable[str], *, tried: bool = True) -> None:
        """Remove what the jobs staged, unless one was decided: then finish it.

        tried: a commit of theirs whose answer was lost may be on its way. So in a bucket the next number's place is
        taken before anything is removed: then it cannot arrive.
        """
        with self._messages():
            jobs = [job for job in jobs if self.medium.staged(job)]
            if not jobs:
                return
            look, newest = self._commits.last()
            if self.medium.remote and tried:
                look, newest = self._settled()
                while not self._commits.take_place(look.number + 1, newest):
                    look, newest = self._settled()
            elif not look.done and newest.job in jobs:
                with self.medium.locked():
                    self._settled()
            self.medium.end_jobs(jobs)

    def end(self, job: str, stream: str | None) -> None:
        """Remove, after a micro-batch, the writer's own job and what jobs of the same stream left that no task could
        report."""
        self.abort(self.medium.jobs_of_stream(job, stream), tried=False)

    def recover(self) -> Look:
        """Finish what a dead writer had decided, and remove what it had only staged; the last commit."""
        with self._messages():
            look, _ = self._commits.last()  # a record that cannot be read is said before a row is encoded
            dead = self.medium.dead_jobs()
            if (look.done or look.number < 0) and not dead:
                return look
            with self.medium.locked():
                look, _ = self._settled()
                self.medium.end_jobs(self.medium.dead_jobs())
            return look

    # ---- the commit

    def _decide(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None, batch: int
    ) -> tuple[tuple[int, CommitRecord] | None, bool]:
        """(number and record of the commit that was put, None when there was nothing to commit; False for a micro-batch
        that was there)."""
        medium, commits = self.medium, self._commits
        for _ in range(self.tries):
            looked = self.now_s()
            look, newest = self._settled()
            if query is not None and newest.has_batch(query, batch):
                said = "micro-batch %d of query %s is in %s already; not written again"
                _log.warning(said, batch, query, medium.path())
                return None, False
            existing = medium.topics()
            ids = {topic: new_uuid() for task in tasks for topic in task.partitions if topic not in existing}
            join_bytes = segment_bytes if medium.join_bytes is None else medium.join_bytes
            layout = plan_segments(tasks, existing, segment_bytes, join_bytes, ids)
            if not layout.pieces and query is None:
                return None, True
            segments = assign_offsets(layout, medium.ends(layout.pieces, existing, newest))
            queries = dict(newest.queries) if query is None else {**newest.queries, query: batch}
            record = CommitRecord(new_record_id(), job, queries, layout.topics, segments)
            commits.expect_put_if_absent(look, newest)
            medium.prepare(record)
            if medium.remote and self.now_s() - looked > LOOK_SECONDS:
                continue
            if commits.put(look.number + 1, record, newest):
                return (look.number + 1, record), True
        raise LogDirLocked(
            f"other sinks committed {self.tries} times while this one wanted to",
            path=medium.path(),
            hint="nothing was written: run it again with fewer writers on this directory, or with a longer trigger",
        )

    def _complete(self, number: int, record: CommitRecord) -> None:
        """Publish a commit that was just put."""
        try:
            try:
                publish(self.medium, record)
            except FileNotFoundError:
                look = self._commits.look()
                if look.number == number and not look.done:
                    raise
                return  # another writer was faster, and has removed the staged objects
            self._commits.mark_done(number)
        except (OSError, KafkalogError) as error:
            raise unfinished(self.medium, error) from error

    # ---- what was left

    def _settled(self) -> tuple[Look, CommitRecord]:
        """The last commit, brought to its end, and its record."""
        look, newest = self._commits.last()
        if look.done or look.number < 0:
            return look, newest
        number = look.number
        try:
            if newest.job is not None:
                number, newest = self._roll_forward(number, newest)
            self._commits.mark_done(number)
            self.medium.end_jobs([newest.job] if newest.job is not None else [])
        except (OSError, KafkalogError) as error:
            raise unfinished(self.medium, error) from error
        return Look(number, True), newest

    def _roll_forward(self, number: int, record: CommitRecord) -> tuple[int, CommitRecord]:
        """Publish what is left of a commit; where its offsets had to change, under the next number."""
        try:
            left = self.medium.remaining(record)
            if not set(left.segments) <= set(record.segments):
                if not self._commits.put(number + 1, left, record):
                    raise LogDirLocked("another sink committed meanwhile", path=self.medium.path())
                number, record = number + 1, left
            publish(self.medium, left)
        except FileNotFoundError as error:
            look = self._commits.look()
            if look.number > number or look.done:
                return number, record  # its own writer was at work, and has finished
            raise CorruptLog(
                f"commit {number} needs a staged file that is gone",
                path=str(error.filename or self.medium.path()),
                hint=f"restore it; or remove {self._commits.record_name(number)}, and with it its records",
            ) from error
        _log.warning("finished commit %d to %s (job %s)", number, self.medium.path(), record.job)
        return number, record

    @contextmanager
    def _messages(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.medium.unwritable(error) from error
