"""Commit of a write: everything it staged becomes part of the log, or nothing does; on a disk and in a bucket.

Commits are numbered records `<commits><20 digits>.json`, each put by whoever is first (put-if-absent), as in Delta.
Numbers have no gap when they are given, because each is put only where the writer saw the one before: so the newest
record is the state of the whole. Old ones are removed when nobody can be about to write their numbers any more.
`<commits>done` names a commit that is complete, with all before it, and listings begin there. It is put without a
condition, and may be lost in a crash: where it is missing or old, the last commit is looked at once more.

1. On a disk the locks of the directory. The last commit is looked at; one that a dead writer left unfinished is
   completed first. A micro-batch that is in the log is not written again.
2. The end of each partition's log is found: there the staged records go on. On a disk the staged files get their
   offsets and indexes, and are flushed.
3. The record of the next number is put, if there is none. It names all that was staged, its place, and the micro-batch.
   THIS is the commit. Whoever loses, in a bucket, begins again at 1.
4. The segments are brought to their places.
5. The commit is marked done; what the job staged is removed, and what dead jobs left.

A crash before 3 leaves staged files that nobody looks at. A crash after 3 leaves work that the next writer completes.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kafkalog_spark import errors
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, format_leader_epochs
from kafkalog_spark.sink import commit_plan
from kafkalog_spark.sink.commit_plan import CommitRecord, PlannedSegment, TaskManifest
from kafkalog_spark.sink.medium import Medium

_log = logging.getLogger(__name__)

LOOK_SECONDS = 3600
"""A writer without a lock that looked at the commits longer ago looks again before it puts one (KEPT_SECONDS)."""

_RECORD_FILE = re.compile(r"([0-9]{20})\.json")
_MOST_RECORD_BYTES = 256 << 20  # one of a million segments has as many
_SMALL_BYTES = 8 << 20
"""Partitions whose segments are no larger are published at once, others one after the other: so the driver holds
_SMALL_BYTES for each of Medium.parallel, or Bucket.whole_bytes, twice."""


def record_file(number: int) -> str:
    """Name of a record, without Medium.commits. Of -1 an empty one, which sorts before all."""
    return f"{number:020d}.json" if number >= 0 else ""


class LastCommit(NamedTuple):
    """Number of the last commit, -1 for none. done: everything of it is known to be there."""

    number: int
    done: bool


@dataclass(frozen=True)
class Committer:
    """Commits and aborts of one log directory. tries: commits of others that one gives way to; so many in a row are a
    bucket with more writers than it can take.

    open_job, commit, abort, end, recover raise NotALogDirectory for what the system or store refuses, CorruptFile and
    UnsupportedFormat for a record, WriteUnfinished when a decided write cannot be completed; the others OSError.
    """

    medium: Medium
    now_s: Callable[[], float] = time.time
    tries: int = 20

    def record_name(self, number: int) -> str:
        return self.medium.commits + record_file(number)

    def look(self) -> LastCommit:
        """The last commit. In a bucket a GET and a LIST."""
        done = self._done()
        numbers = self._numbers(self.medium.commit_files(record_file(done - 1))) if done >= 0 else {}
        if done not in numbers:  # missing, or what is there is not what it was written about
            done, numbers = -1, self._numbers(self.medium.commit_files())
        last = max(numbers, default=-1)
        return LastCommit(last, last == done)

    def _done(self) -> int:
        try:
            number = json.loads(self.medium.read(self.medium.commits + "done", 1000))["number"]
        except (FileNotFoundError, errors.CorruptFile, ValueError, KeyError, TypeError, RecursionError):
            return -1
        return number if type(number) is int else -1

    def _numbers(self, files: Iterable[str]) -> dict[int, str]:
        return {int(match[1]): file for file in files if (match := _RECORD_FILE.fullmatch(file))}

    def read(self, number: int) -> CommitRecord:
        """Raises CorruptFile, UnsupportedFormat, FileNotFoundError."""
        name = self.record_name(number)
        try:
            return commit_plan.parse_record(self.medium.read(name, _MOST_RECORD_BYTES))
        except (errors.CorruptFile, errors.UnsupportedFormat) as error:
            error.hint = error.hint or "it says which micro-batches are in the log: restore it from a backup"
            raise error.at(path=self.medium.path(name)) from None

    def last(self) -> tuple[LastCommit, CommitRecord]:
        """The last commit and its record, of none an empty one; also while another writer removes old ones."""
        while True:
            last = self.look()
            try:
                return last, self.read(last.number) if last.number >= 0 else CommitRecord("")
            except FileNotFoundError:
                if self.look() == last:
                    raise

    def topics(self) -> dict[str, list[int]]:
        """Medium.topics for a task, which does not hold the directory's locks: a topic that another sink is making just
        now has all the partitions that it will have, not those whose directories are there so far. Raises as `read`."""
        if self.medium.remote:  # there the last partition is made first
            return self.medium.topics()
        while True:
            last, newest = self.last()
            topics = self.medium.topics()
            if self.look() == last:
                break  # else a commit began or ended meanwhile, and the listing may show the middle of it
        for topic in () if last.done else newest.topics:
            topics[topic.name] = sorted({*topics.get(topic.name, ()), *range(topic.partitions)})
        return topics

    def put(self, number: int, record: CommitRecord, previous: CommitRecord) -> bool:
        """Commit `record`; False when somebody else has that number. previous: the record of the number before.

        When an answer is lost and the request may yet come through, the number's place is taken by a record of nothing.
        Raises OSError where the commit is not there and never will be, WriteUnfinished where it is, or may be.
        """
        try:
            return self.medium.create(self.record_name(number), commit_plan.format_record(record))
        except OSError as error:
            try:
                if self.medium.remote and self.take_place(number, previous):
                    raise
                decided = self.read(number).id == record.id
            except (OSError, errors.KafkalogError) as second:
                if second is error or not self.medium.remote or isinstance(second, PermissionError):
                    raise error from None
                raise errors.WriteUnfinished(
                    "the store stopped answering while the commit was written, so it is not known whether it was: "
                    f"{error.strerror or error}",
                    path=self.medium.path(),
                    hint="when it answers again, look at the log before you run the write again (a stream does so by "
                    "itself)",
                ) from second
            if self.medium.remote:
                return decided
            if decided:  # only its last fsync failed
                raise self.unfinished(error) from error
            raise

    def take_place(self, number: int, previous: CommitRecord) -> bool:
        """Put a record of nothing, so that no put of that number can come after it; False when there is one."""
        nothing = CommitRecord(queries=previous.queries)
        return self.medium.create(self.record_name(number), commit_plan.format_record(nothing))

    def mark_done(self, number: int) -> None:
        data = json.dumps({"number": number}).encode() + b"\n"
        self.medium.replace(self.medium.commits + "done", data, sync=False)

    def unfinished(self, error: Exception) -> errors.WriteUnfinished:
        return errors.WriteUnfinished(
            f"the write is decided, but not all of it is in its place yet: {error}",
            path=self.medium.path(),
            hint="do not run it again: the next write to this directory finishes it, when the cause is gone",
        )

    def open_job(self, stream: str | None) -> str:
        """Check the directory, finish what a dead writer left, and begin a job; its id. stream: see staging.Job. Raises
        what Medium.check_target raises; then nothing has changed."""
        job = uuid.uuid4().hex
        with self._messages():
            self.medium.check_target()
            if self.recover().number < 0:
                self.medium.expect_put_if_absent()
            self.medium.begin_job(job, stream)
        return job

    def commit(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None = None, batch: int = -1
    ) -> bool:
        """Make what the tasks staged part of the log; False when that micro-batch of `query` was there already. On
        return everything is on disk.

        Raises LogDirLocked, JobEnded, BrokerOwnsDirectory, UnknownPartition, CorruptLog, after which, as after any
        error but WriteUnfinished, nothing is visible, and `abort` cleans up.
        """
        with self._messages(), self.medium.locked():
            decided = self._decide(job, tasks, segment_bytes, query, batch)
            if decided is not None:
                self._complete(*decided)
            try:
                self.medium.sweep(job)
                if decided is not None:
                    files = self._numbers(self.medium.superseded(decided[0])).items()
                    self.medium.delete([self.medium.commits + file for older, file in files if older < decided[0]])
            except OSError as error:  # the next sink removes it
                _log.warning("the write is complete, but its staged files could not all be removed: %s", error)
            return decided is not None or query is None

    def abort(self, jobs: Iterable[str], *, tried: bool = True) -> None:
        """Remove what the jobs staged, unless one was decided: then finish it. tried: a commit of theirs whose answer
        was lost may be on its way. So in a bucket the next number's place is taken before anything is removed."""
        with self._messages():
            jobs = [job for job in jobs if self.medium.staged(job)]
            if not jobs:
                return
            last, newest = self.last()
            if self.medium.remote and tried:
                last, newest = self._finish_last()
                while not self.take_place(last.number + 1, newest):
                    last, newest = self._finish_last()
            elif not last.done and newest.job in jobs:
                with self.medium.locked():
                    self._finish_last()
            self.medium.end_jobs(jobs)

    def end(self, job: str, stream: str | None) -> None:
        """Remove, after a micro-batch, the writer's own job and those of the same stream that no task could report."""
        self.abort(self.medium.jobs_of_stream(job, stream), tried=False)

    def recover(self) -> LastCommit:
        """Finish what a dead writer had decided, and remove what it had only staged; the last commit."""
        with self._messages():
            last, _ = self.last()  # a record that cannot be read is said before a row is encoded
            if (last.done or last.number < 0) and not self.medium.dead_jobs():
                return last
            with self.medium.locked():
                last, _ = self._finish_last()
                self.medium.end_jobs(self.medium.dead_jobs())
            return last

    def _decide(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None, batch: int
    ) -> tuple[int, CommitRecord] | None:
        """The commit that was put; None for a micro-batch that was there, and when there was nothing to commit."""
        medium = self.medium
        for _ in range(self.tries):
            looked = self.now_s()
            last, newest = self._finish_last()
            if query is not None and newest.queries.get(query, -1) >= batch:  # that one, or a later one
                text = "micro-batch %d of query %s is in %s already; not written again"
                _log.warning(text, batch, query, medium.path())
                return None
            existing = medium.topics()
            planned, topics = commit_plan.plan_segments(tasks, existing, segment_bytes, medium.join_bytes)
            if not planned and query is None:
                return None
            ends = medium.ends(dict.fromkeys(segment.key for segment in planned), existing, newest)
            queries = dict(newest.queries) if query is None else {**newest.queries, query: batch}
            segments = commit_plan.assign_offsets(planned, ends)
            record = CommitRecord(job=job, queries=queries, topics=topics, segments=segments)
            # All depends on the store's condition: the newest record, put once more with a byte that means nothing,
            # must be refused.
            if medium.remote:
                again = commit_plan.format_record(newest) + b"\n"
                if last.number < 0 or medium.create(self.record_name(last.number), again):
                    medium.expect_put_if_absent()  # has the message
            medium.prepare(record)
            if medium.remote and self.now_s() - looked > LOOK_SECONDS:
                continue
            if self.put(last.number + 1, record, newest):
                return last.number + 1, record
        raise errors.LogDirLocked(
            f"other sinks committed {self.tries} times while this one wanted to",
            path=medium.path(),
            hint="nothing was written: run it again with fewer writers on this directory, or with a longer trigger",
        )

    def _complete(self, number: int, record: CommitRecord) -> None:
        try:
            try:
                self._publish(record)
            except FileNotFoundError:
                last = self.look()
                if last.number == number and not last.done:
                    raise
                return  # another writer was faster, and has removed the staged objects
            self.mark_done(number)
        except (OSError, errors.KafkalogError) as error:
            raise self.unfinished(error) from error

    def _finish_last(self) -> tuple[LastCommit, CommitRecord]:
        """The last commit, brought to its end where its writer left it."""
        last, newest = self.last()
        if last.done or last.number < 0:
            return last, newest
        number = last.number
        try:
            if newest.job is not None:
                number, newest = self._roll_forward(number, newest)
            self.mark_done(number)
            self.medium.end_jobs([newest.job] if newest.job is not None else [])
        except (OSError, errors.KafkalogError) as error:
            raise self.unfinished(error) from error
        return LastCommit(number, True), newest

    def _roll_forward(self, number: int, record: CommitRecord) -> tuple[int, CommitRecord]:
        """Publish what is left of a commit; where its offsets had to change, under the next number."""
        try:
            left = self.medium.remaining(record)
            if not set(left.segments) <= set(record.segments):
                if not self.put(number + 1, left, record):
                    raise errors.LogDirLocked("another sink committed meanwhile", path=self.medium.path())
                number, record = number + 1, left
            self._publish(left)
        except FileNotFoundError as error:
            last = self.look()
            if last.number > number or last.done:
                return number, record  # its own writer was at work, and has finished
            raise errors.CorruptLog(
                f"commit {number} needs a staged file that is gone",
                path=str(error.filename or self.medium.path()),
                hint=f"restore it; or remove {self.record_name(number)}, and with it its records",
            ) from error
        _log.warning("finished commit %d to %s (job %s)", number, self.medium.path(), record.job)
        return number, record

    def _publish(self, record: CommitRecord) -> None:
        """Bring the segments of a commit to their places. Doing it again goes on. Raises OSError (FileNotFoundError:
        somebody else was faster and removed what was staged, or that is lost), and as Medium.publish_segment."""
        medium, by_partition = self.medium, record.by_partition()
        filled = {topic.name: [key[1] for key in by_partition if key[0] == topic.name] for topic in record.topics}
        medium.run([partial(medium.make_topic, topic, filled[topic.name]) for topic in record.topics])
        large = {key for key, own in by_partition.items() if max(segment.size for segment in own) > _SMALL_BYTES}
        medium.run([partial(self._publish_partition, own) for key, own in by_partition.items() if key not in large])
        for key in by_partition:
            if key in large:
                self._publish_partition(by_partition[key])
        medium.end_publish(record)

    def _publish_partition(self, segments: Sequence[PlannedSegment]) -> None:
        first = segments[0]
        if first.epochs is not None:
            self.medium.replace(f"{first.directory}/{LEADER_EPOCH_CHECKPOINT}", format_leader_epochs(first.epochs))
        for number, segment in enumerate(segments):
            if number:
                self.medium.sync_published(segments[number - 1])
            self.medium.publish_segment(segment)

    @contextmanager
    def _messages(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.medium.unwritable(error) from error
