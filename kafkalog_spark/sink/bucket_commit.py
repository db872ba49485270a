"""A write's end in a bucket: everything it staged becomes part of the log, or nothing. There is no lock and no rename.

1. The last commit is looked at; one whose objects are not all there is brought to its end first, whoever made it.
2. The log of each partition is looked at: where it ends now, the staged objects' records go on.
3. `kafkalog.commits/<number>.json` is put, on the condition that there is none of that number: it names every staged
   object and its place, and the micro-batch. THIS is the commit. Whoever loses begins again at 1.
4. The segments are made of the staged objects; see bucket_publish.
5. `kafkalog.commits/done` says so; the staged objects are removed, and those of jobs that ended long ago.

A stop before 3 leaves staged objects that nobody looks at. A stop after 3 leaves work that the next writer finishes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptLog, JobEnded, KafkalogError, LogDirLocked, WriteUnfinished
from kafkalog_spark.log.format.partition_metadata import new_uuid
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.small_files import Checkpoints
from kafkalog_spark.sink.bucket import Bucket
from kafkalog_spark.sink.bucket_end import NEW_END, BucketEnd, end_in_bucket, last_segments
from kafkalog_spark.sink.bucket_names import STAGED, staged_directory
from kafkalog_spark.sink.bucket_plan import new_record
from kafkalog_spark.sink.bucket_publish import BucketPublisher
from kafkalog_spark.sink.bucket_record import BucketRecord
from kafkalog_spark.sink.bucket_target import topics_in_bucket
from kafkalog_spark.sink.commit_log import KEPT_SECONDS, LOOK_SECONDS, CommitLog, Look, Undecided
from kafkalog_spark.sink.commit_plan import Layout, TopicPartition, lay_out
from kafkalog_spark.sink.manifest import TaskManifest

_log = logging.getLogger(__name__)

MOST_TRIES = 20
"""Commits of others that a commit gives way to, each complete when it plans anew. So many in a row are a bucket with
more writers than it can take."""


@dataclass(frozen=True)
class BucketCommitter:
    """Commits and aborts of one log directory in a bucket. now_s: the clock, for tests."""

    bucket: Bucket
    now_s: Callable[[], float] = time.time
    tries: int = MOST_TRIES

    def commit(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None = None, batch: int = -1
    ) -> bool:
        """Make what the tasks staged part of the log; False when that micro-batch of `query` was there already.

        Raises WriteUnfinished when the write is decided and the next write will bring it to its end; after any other
        error nothing is visible. LogDirLocked when others were always faster, UnknownPartition, JobEnded,
        CorruptLog, NotALogDirectory for what the store refuses.
        """
        with self._sentences():
            decided = self._decide(job, tasks, segment_bytes, query, batch)
            if decided is not None:
                number, record = decided
                self._complete(number, record)
                self._clean_up(job, number)
            elif query is not None:
                self._end_jobs([job])
            return decided is not None or query is None

    def abort(self, jobs: Iterable[str], *, tried: bool = True) -> None:
        """Remove what the jobs staged, unless one was decided: then finish it. Raises WriteUnfinished,
        NotALogDirectory.

        tried: a commit of theirs whose answer was lost may be on its way. So the next number's place is taken before
        anything is removed: then it cannot arrive.
        """
        with self._sentences():
            left = [name for job in jobs for name in self._staged(job)]
            if not left:
                return
            commits = CommitLog(self.bucket)
            look, newest = self._settled()
            while tried and not commits.take_place(look.number + 1, newest):
                look, newest = self._settled()
            self.bucket.delete(left)

    def recover(self) -> Look:
        """Finish what a dead writer had decided; the last commit."""
        with self._sentences():
            look = CommitLog(self.bucket).look()
            return look if look.done else self._settled()[0]

    # ---- the commit

    def _decide(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None, batch: int
    ) -> tuple[int, BucketRecord] | None:
        """The commit that was put, with its number; None when there was nothing to commit."""
        commits = CommitLog(self.bucket)
        for _ in range(self.tries):
            looked = self.now_s()
            look, newest = self._settled()
            if query is not None and newest.has_batch(query, batch):
                _log.warning(
                    "micro-batch %d of query %s is in %s already; not written again", batch, query, self.bucket.root
                )
                return None
            existing = topics_in_bucket(self.bucket)
            ids = {topic: new_uuid() for task in tasks for topic in task.partitions if topic not in existing}
            layout = lay_out(job, tasks, existing, segment_bytes, ids, join_bytes=segment_bytes)
            if not layout.pieces and query is None:
                return None
            ends = self._ends(layout, existing, newest)
            record = new_record(job, layout, ends, tasks, newest, query, batch)
            commits.expect_conditional_put(look, newest)
            self._expect_staged(job, record)
            if self.now_s() - looked > LOOK_SECONDS:
                continue
            try:
                if commits.put(look.number + 1, record, newest):
                    return look.number + 1, record
            except Undecided as undecided:
                raise WriteUnfinished(
                    "the store stopped answering while the commit was written, so it is not known whether it was: "
                    f"{undecided.error.strerror or undecided.error}",
                    path=self.bucket.root,
                    hint="when it answers again, look at the log before you run the write again (a stream does so by "
                    "itself)",
                ) from undecided
        raise LogDirLocked(
            f"other sinks committed {self.tries} times while this one wanted to",
            path=self.bucket.root,
            hint="nothing was written: run it again with fewer writers on this directory, or with a longer trigger",
        )

    def _expect_staged(self, job: str, record: BucketRecord) -> None:
        """Raise unless all pieces of a commit are there: one that names what is gone could never be completed."""
        wanted = {(piece.name, piece.size) for segment in record.segments for piece in segment.pieces}
        directory = staged_directory(job)
        found = {(f"{directory}/{one.name}", one.size) for one in self.bucket.below(directory)} if wanted else set()
        if not wanted <= found:
            raise JobEnded(
                f"{len(wanted - found)} of {len(wanted)} staged objects are gone or have another size",
                path=self.bucket.path(min(wanted - found)[0]),
                hint="nothing was written; staged objects are removed after a week, or somebody else removed them: run "
                "the write again",
            )

    def _complete(self, number: int, record: BucketRecord) -> None:
        """Make the objects of a commit that was just put."""
        try:
            try:
                BucketPublisher(self.bucket).publish(record, again=False)
            except FileNotFoundError:
                look = CommitLog(self.bucket).look()
                if look.number == number and not look.done:
                    raise
                return  # another writer was faster, and has removed the staged objects
            CommitLog(self.bucket).mark_done(number)
        except (OSError, KafkalogError) as error:
            raise self._unfinished(error) from error

    def _ends(
        self, layout: Layout, existing: Mapping[str, list[int]], newest: BucketRecord
    ) -> dict[TopicPartition, BucketEnd]:
        known = last_segments(newest.by_partition())
        checkpoints = Checkpoints()

        def end(key: TopicPartition) -> BucketEnd:
            topic, partition = key
            if partition not in existing.get(topic, ()):
                return NEW_END
            place = PartitionPlace(topic, partition, self.bucket.path(f"{topic}-{partition}"), self.bucket.store)
            return end_in_bucket(place, known.get(key), checkpoints)

        with ThreadPoolExecutor(self.bucket.parallel, "ends") as threads:
            return dict(zip(layout.pieces, threads.map(end, layout.pieces), strict=True))

    # ---- what was left

    def _settled(self) -> tuple[Look, BucketRecord]:
        """The last commit, brought to its end, and its record."""
        commits = CommitLog(self.bucket)
        look = commits.look()
        newest = commits.newest(look)
        if look.done or look.number < 0:
            return look, newest
        try:
            if newest.job is not None:
                self._roll_forward(look.number, newest)
            commits.mark_done(look.number)
            self._end_jobs([newest.job] if newest.job is not None else [])
        except (OSError, KafkalogError) as error:
            raise self._unfinished(error) from error
        return Look(look.number, True), newest

    def _roll_forward(self, number: int, record: BucketRecord) -> None:
        try:
            BucketPublisher(self.bucket).publish(record, again=True)
        except FileNotFoundError as error:
            look = CommitLog(self.bucket).look()
            if look.number > number or look.done:
                return  # its own writer was at work, and has finished
            raise CorruptLog(
                f"commit {number} needs a staged object that is gone",
                path=str(error.filename or self.bucket.root),
                hint="restore it; or remove the commit's record in kafkalog.commits, and with it its records",
            ) from error
        _log.warning("finished commit %d to %s (job %s)", number, self.bucket.root, record.job)

    def _staged(self, job: str) -> list[str]:
        directory = staged_directory(job)
        return [f"{directory}/{found.name}" for found in self.bucket.below(directory)]

    def _end_jobs(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self.bucket.delete(self._staged(job))

    def _clean_up(self, job: str, number: int) -> None:
        """Remove what the job staged, and what jobs staged that nobody can be working on any more."""
        try:
            staged = self.bucket.below(STAGED)
            now = max((found.modified_s for found in staged), default=0.0)
            newest: dict[str, float] = {}
            for found in staged:
                owner = found.name.partition("/")[0]
                newest[owner] = max(newest.get(owner, 0.0), found.modified_s)
            over = {owner for owner, at in newest.items() if owner == job or now - at > KEPT_SECONDS}
            self.bucket.delete([f"{STAGED}/{one.name}" for one in staged if one.name.partition("/")[0] in over])
            CommitLog(self.bucket).prune(number)
        except OSError as error:  # the next sink removes it
            _log.warning("the write is complete, but its staged objects could not all be removed: %s", error)

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.bucket.unwritable(error) from error

    def _unfinished(self, error: Exception) -> KafkalogError:
        return WriteUnfinished(
            f"the write is decided, but not all of it is in its place yet: {error}",
            path=self.bucket.root,
            hint="do not run it again: the next write to this directory finishes it, when the cause is gone",
        )
