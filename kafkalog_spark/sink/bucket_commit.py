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

import errno
import logging
import posixpath
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptLog, JobEnded, KafkalogError, LogDirLocked, WriteUnfinished
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, format_leader_epochs
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    format_partition_metadata,
    new_uuid,
    parse_partition_metadata,
)
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.small_files import Checkpoints
from kafkalog_spark.log.write.segment_writer import PieceStamper
from kafkalog_spark.sink.bucket import STAGED, Bucket, staged_directory
from kafkalog_spark.sink.bucket_target import NEW_END, BucketEnd, end_in_bucket, last_segments, topics_in_bucket
from kafkalog_spark.sink.commit_log import (
    KEPT_SECONDS,
    LOOK_SECONDS,
    BucketRecord,
    BucketSegment,
    CommitLog,
    Look,
    StagedPiece,
    Undecided,
)
from kafkalog_spark.sink.commit_plan import Layout, TopicPartition, lay_out, new_record
from kafkalog_spark.sink.sink_record import NewTopic
from kafkalog_spark.sink.staging import TaskManifest

# The second half of a commit in a bucket: its record says what is to be there, and whoever comes makes it.
#
# Several may do so at once, and each may stop anywhere: every object is put where none is, with bytes that follow
# from the record and the staged objects alone. Of each segment the .log comes last, and a partition's segments come
# one after the other: who reads meanwhile sees a whole log.

_SMALL_BYTES = 8 << 20
"""Partitions whose segments are no larger are worked on at once, others one after the other: so the driver holds
_SMALL_BYTES for each of bucket.parallel, or bucket.whole_bytes, twice."""
_METADATA_BYTES = 1000
_LOOKS = 5
"""A gateway may refuse a put because of an object that it does not show yet, as another writer is putting it."""


@dataclass(frozen=True)
class BucketPublisher:
    """Makes the objects of a commit."""

    bucket: Bucket

    def publish(self, record: BucketRecord, *, again: bool) -> None:
        """Make what is not there yet. again: some of it may be.

        Raises OSError (FileNotFoundError: somebody else has made all of it and removed the staged objects, or these are
        lost), CorruptLog where another segment is in the way. Doing it again goes on.
        """
        self._each([lambda topic=topic: self._make_topic(topic) for topic in record.topics])  # type: ignore[misc]
        created = {topic.name for topic in record.topics}
        small: list[Callable[[], None]] = []
        large: list[Callable[[], None]] = []
        for key, segments in record.by_partition().items():
            to_do = self._work(segments, again=again, created=key[0] in created)
            (small if max(segment.size for segment in segments) <= _SMALL_BYTES else large).append(to_do)
        self._each(small)
        for to_do in large:
            to_do()

    def _work(self, segments: Sequence[BucketSegment], *, again: bool, created: bool) -> Callable[[], None]:
        return lambda: self._publish_partition(segments, again=again, created=created)

    def _each(self, work: Sequence[Callable[[], None]]) -> None:
        if self.bucket.parallel == 1 or len(work) == 1:
            for one in work:
                one()
            return
        with ThreadPoolExecutor(self.bucket.parallel, "publish") as threads:
            for done in [threads.submit(one) for one in work]:
                done.result()

    def _make_topic(self, topic: NewTopic) -> None:
        """partition.metadata of all its partitions, from the last one down: who looks meanwhile sees how many there
        will be. A partition without records has no other object; to readers and brokers it is an empty log."""
        topic_id = topic.id
        for partition in reversed(range(topic.partitions)):
            name = f"{topic.name}-{partition}/{PARTITION_METADATA_FILE}"
            if not self.bucket.create(name, format_partition_metadata(PartitionMetadata(topic_id))):
                with suppress(FileNotFoundError):  # refused and not shown: another writer of this commit is putting it
                    topic_id = parse_partition_metadata(self.bucket.read(name, _METADATA_BYTES)).topic_id

    def _publish_partition(self, segments: Sequence[BucketSegment], *, again: bool, created: bool) -> None:
        first = segments[0]
        directory = f"{first.topic}-{first.partition}"
        there: Mapping[str, int] = {}
        if again:
            there = self.bucket.sizes(directory)
            if not there and not created:
                lost = sum(segment.records for segment in segments)
                _log.warning("%s was deleted: %d records that were committed to it are gone with it", directory, lost)
                return
        if first.epochs is not None:
            self.bucket.put(posixpath.join(directory, LEADER_EPOCH_CHECKPOINT), format_leader_epochs(first.epochs))
        for segment in segments:
            if not _is_there(segment, there):
                self._publish_segment(segment)

    def _publish_segment(self, segment: BucketSegment) -> None:
        if segment.size > self.bucket.whole_bytes and not segment.replaces_empty:
            self._upload(segment)
            return
        stamper = PieceStamper(segment.base_offset, segment.leader_epoch)
        data = bytearray()
        for piece in self._stamped(segment, stamper):
            data += piece
        indexes = stamper.indexes()
        if not segment.replaces_empty:
            self._put_indexes(segment, indexes)
            self._put_log(segment, data, self.bucket.create)
        else:  # the old indexes say nothing, so a reader does without; of the new ones it would ask what is not there
            self._put_log(segment, data, self.bucket.replace_empty)
            self._put_indexes(segment, indexes)

    def _put_log(self, segment: BucketSegment, data: bytearray, put: Callable[[str, bytes], bool]) -> None:
        name = _object(segment, names.LOG_SUFFIX)
        for _ in range(_LOOKS):
            if put(name, bytes(data)) or self._is_same(segment, data[: layout.BATCH_OVERHEAD]):
                return
        raise _flickers(name)

    def _is_same(self, segment: BucketSegment, header: bytes | bytearray) -> bool:
        """Whether the .log is there that was to be put, because another writer of the same commit was faster; False
        where it is not there after all. Raises CorruptLog for another one."""
        name = _object(segment, names.LOG_SUFFIX)
        size = self.bucket.sizes(posixpath.dirname(name)).get(posixpath.basename(name))
        if size is None:
            return False
        try:
            first = self.bucket.read(name, len(header))
        except FileNotFoundError:
            return False
        if size != segment.size or first != bytes(header):
            raise CorruptLog(
                f"there is a segment where offset {segment.base_offset} was to be written",
                topic_partition=f"{segment.topic}-{segment.partition}",
                path=self.bucket.path(name),
                hint="something else than kafkalog's sink writes to this log: stop it, and remove what it wrote there",
            )
        return True

    def _put_indexes(self, segment: BucketSegment, indexes: tuple[bytes, bytes]) -> None:
        for suffix, data in zip((names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX), indexes, strict=True):
            self._put_index(_object(segment, suffix), data)

    def _put_index(self, name: str, data: bytes) -> None:
        for _ in range(_LOOKS):
            if self.bucket.create(name, data):
                return
            try:
                found = self.bucket.read(name, len(data) + 1)
            except FileNotFoundError:
                continue
            if found != data:
                self.bucket.put(name, data)  # of an empty segment, or without a .log: nobody's
            return
        raise _flickers(name)

    def _upload(self, segment: BucketSegment) -> None:
        """A large .log, in parts. The object is there when the last part is, so the indexes are put before that."""
        name = _object(segment, names.LOG_SUFFIX)
        sizes = self.bucket.sizes(posixpath.dirname(name))
        if posixpath.basename(name) in sizes:
            first = next(self._stamped(segment, PieceStamper(segment.base_offset, segment.leader_epoch)))
            if self._is_same(segment, first[: layout.BATCH_OVERHEAD]):
                return

        def pieces() -> Iterator[bytearray]:
            stamper = PieceStamper(segment.base_offset, segment.leader_epoch)
            yield from self._stamped(segment, stamper)
            self._put_indexes(segment, stamper.indexes())

        self.bucket.upload(name, pieces, segment.size)

    def _stamped(self, segment: BucketSegment, stamper: PieceStamper) -> Iterator[bytearray]:
        """The pieces of a segment with their offsets. Raises FileNotFoundError, KafkalogError where they are not what
        the commit was made of."""
        for piece in segment.pieces:
            yield stamper.stamp(self._read(piece))
        if (stamper.next_offset, stamper.size) != (segment.next_offset, segment.size):
            raise KafkalogError(
                f"the staged objects of a segment hold {stamper.next_offset - segment.base_offset} records in "
                f"{stamper.size} bytes, the commit names {segment.records} in {segment.size}",
                topic_partition=f"{segment.topic}-{segment.partition}",
                path=self.bucket.path(segment.pieces[0].name),
                hint="somebody else changed them: restore them, or remove the commit's record, and with it its records",
            )

    def _read(self, piece: StagedPiece) -> bytes:
        data = self.bucket.read(piece.name, piece.size + 1)
        if len(data) != piece.size:
            raise KafkalogError(
                f"a staged object has {len(data)} bytes, its task wrote {piece.size}",
                path=self.bucket.path(piece.name),
                hint="somebody else changed it",
            )
        return data


def _flickers(name: str) -> OSError:
    return OSError(errno.EAGAIN, f"the store says {_LOOKS} times that an object is there, and that it is not", name)


def _object(segment: BucketSegment, suffix: str) -> str:
    return f"{segment.topic}-{segment.partition}/{names.segment_name(segment.base_offset)}{suffix}"


def _is_there(segment: BucketSegment, there: Mapping[str, int]) -> bool:
    """Whether a listing of the partition shows all of a segment. One that replaced an empty one may still have that
    one's indexes."""
    stem = names.segment_name(segment.base_offset)
    return (
        not segment.replaces_empty
        and there.get(stem + names.LOG_SUFFIX) == segment.size
        and {stem + names.OFFSET_INDEX_SUFFIX, stem + names.TIME_INDEX_SUFFIX} <= there.keys()
    )


def staged_names(segments: Iterable[BucketSegment]) -> list[str]:
    """Of all pieces."""
    return [piece.name for segment in segments for piece in segment.pieces]


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
