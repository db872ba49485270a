"""Log directory in a bucket: requests, and segments that are made of staged objects. There is no lock and no rename.

Several writers may complete a commit at once, and each may stop anywhere: every object is put where none is, with bytes
that follow from the record and the staged objects alone. Of each segment the .log comes last, and a partition's
segments come one after the other: who reads meanwhile sees a whole log.

    kafkalog.commits/<20 digits>.json, kafkalog.commits/done    the commit log
    kafkalog.staged/<job>/<task>-<attempt>-<n>.log              whole batches of one partition, without offsets yet

No object says that a job lives: what it leaves is known by its age.
"""

from __future__ import annotations

import errno
import logging
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace

from kafkalog_spark.errors import JobEnded, KafkalogError, NotALogDirectory
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.format.names import DirKind, parse_partition_dir
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    format_partition_metadata,
    parse_partition_metadata,
)
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.small_files import Checkpoints, read_meta_properties
from kafkalog_spark.log.write.segment_writer import PieceStamper
from kafkalog_spark.sink.commit_plan import (
    CommitRecord,
    NewTopic,
    PartitionEnd,
    PlannedSegment,
    StagedPiece,
    TopicPartition,
)
from kafkalog_spark.sink.medium import (
    INDEX_SUFFIXES,
    check_no_segments,
    record_file,
    record_number,
    segment_file,
    segment_in_the_way,
)
from kafkalog_spark.sink.partition_end import EMPTY_END, locate_end_in_bucket
from kafkalog_spark.store.interface import normalised
from kafkalog_spark.store.object_file import Buffer
from kafkalog_spark.store.object_store import AgedObject, ObjectStore, modified, objects_below
from kafkalog_spark.store.object_writer import ObjectWriter, replace_empty, upload
from kafkalog_spark.store.storage_options import StorageOptions
from kafkalog_spark.store.stores import store_of

_log = logging.getLogger(__name__)

COMMITS = "kafkalog.commits"
STAGED = "kafkalog.staged"

WHOLE_BYTES = 64 << 20
"""An object of up to so many bytes is put whole, on the condition that there is none. A larger one goes in parts, which
know no condition: it is looked for before."""

_SMALL_BYTES = 8 << 20
"""Partitions whose segments are no larger are worked on at once, others one after the other: so the driver holds
_SMALL_BYTES for each of bucket.parallel, or bucket.whole_bytes, twice."""
_METADATA_BYTES = 1000
_LOOKS = 5
"""A gateway may refuse a put because of an object that it does not show yet, as another writer is putting it."""

KEPT_SECONDS = 7 * 24 * 3600
"""How long a record stays after a newer one was put: a writer that looked at the commits before, and stopped for so
long, must still find its number taken. Writers look again after commit.LOOK_SECONDS, and S3 refuses requests that were
signed 15 minutes ago. Also how long staged objects stay that nobody uses: longer than any job takes (Kafka's
transactional.id.expiration.ms)."""

PRUNE_EVERY = 100
"""Commits after which old records are removed: a listing and some deletions."""


@dataclass(frozen=True)
class Bucket:
    """Log directory in a bucket: see Medium. All methods raise OSError.

    Every change passes `step` first. Tests let it fail or stop the writer there, or let another one write in between.

    parallel: requests that are made at once, at most. whole_bytes: WHOLE_BYTES.
    """

    root: str
    store: ObjectStore
    parallel: int = 8
    whole_bytes: int = WHOLE_BYTES

    commits = COMMITS + "/"
    remote = True
    join_bytes = None

    @classmethod
    def at(cls, path: str, storage: StorageOptions) -> Bucket:
        """Raises OptionError for a path that is not in an object store."""
        root = normalised(path)
        store = store_of(root, storage)
        assert isinstance(store, ObjectStore), root
        return cls(root, store)

    def step(self, what: str, name: str) -> None:
        """Called before each change, with a word for it and the name that changes."""

    def path(self, name: str = "") -> str:
        return posixpath.join(self.root, name) if name else self.root

    # ---- looking

    def names(self, directory: str = "", after: str = "") -> tuple[list[str], list[str]]:
        """(files, directories) in a directory, sorted; none where there is nothing. Raises NotADirectoryError."""
        try:
            listing = self.store.list(self.path(directory), after)
        except FileNotFoundError:
            return [], []
        found = sorted(listing.names)
        directories = [name for name in found if listing.is_directory(name)]
        return [name for name in found if name in listing.files], directories

    def sizes(self, directory: str) -> dict[str, int]:
        """Bytes of the files in a directory; none where there is nothing."""
        try:
            return {name: facts.size for name, facts in self.store.list(self.path(directory)).files.items()}
        except FileNotFoundError:
            return {}

    def read(self, name: str, most: int) -> bytes:
        """Raises FileNotFoundError."""
        return self.store.read_all(self.path(name), most)

    def below(self, directory: str, enough: Callable[[AgedObject], bool] = lambda _: False) -> list[AgedObject]:
        """object_store.objects_below."""
        return objects_below(self.store, self.path(directory), enough)

    def modified(self, name: str) -> float:
        """object_store.modified."""
        return modified(self.store, self.path(name))

    # ---- changing

    def expect_put_if_absent(self) -> None:
        """ObjectWriter.expect_conditional_put: leaves nothing."""
        self.step("probe", COMMITS)
        self._writer.expect_conditional_put(self.path(COMMITS))

    def create(self, name: str, data: Buffer) -> bool:
        """Write an object that is not there; False when it is."""
        self.step("create", name)
        return self._writer.put_if_absent(self.path(name), data)

    def put(self, name: str, data: Buffer) -> None:
        self.step("put", name)
        self._writer.put(self.path(name), data)

    def replace_hint(self, name: str, data: bytes) -> None:
        self.put(name, data)

    def replace(self, name: str, data: bytes) -> None:
        self.put(name, data)

    def replace_empty(self, name: str, data: Buffer) -> bool:
        """object_writer.replace_empty."""
        self.step("replace", name)
        return replace_empty(self.store, self.path(name), data)

    def upload(self, name: str, pieces: Callable[[], Iterable[Buffer]], size: int) -> None:
        """object_writer.upload."""
        self.step("upload", name)
        upload(self.store, self.path(name), pieces, size)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects that may have gone already."""
        if names:
            self.step("delete", names[0])
            self._writer.delete([self.path(name) for name in names])

    @property
    def _writer(self) -> ObjectWriter:
        return ObjectWriter(self.store)

    def unwritable(self, error: OSError) -> NotALogDirectory:
        rights = "writing needs to list, get, put and delete objects"
        return NotALogDirectory(
            f"cannot be written: {error.strerror or error}",
            path=str(error.filename or self.root),
            hint=f"nothing was written; {rights}" if isinstance(error, PermissionError) else "nothing was written",
        )

    # ---- the directory and jobs

    def check_target(self) -> None:
        """See Medium. One LIST. NotALogDirectory: an object, one partition's directory, something else's directory."""
        try:
            files, directories = self.names()
        except NotADirectoryError:
            raise NotALogDirectory(
                "is an object, a log directory is written to", path=self.root, hint="give a path of its own"
            ) from None
        check_no_segments(files, self.root, posixpath.dirname(self.root))
        if META_PROPERTIES_FILE in files:
            read_meta_properties(self.store, self.root)
        known = {META_PROPERTIES_FILE, COMMITS, STAGED}
        found = files + directories
        if found and not any(name in known or parse_partition_dir(name) for name in found):
            LogDirs.open(self.root, self.store.options)  # raises for a directory without anything of Kafka's

    def locked(self) -> AbstractContextManager[None]:
        """Nothing: the commit record is put on a condition."""
        return nullcontext()

    def make_directory(self) -> bool:
        return False

    def begin_job(self, job: str, stream: str | None, *, made_directory: bool) -> None:
        """Nothing is put."""

    def stage(self, job: str) -> BucketStage:
        return BucketStage(self, job)

    def staged(self, job: str) -> list[str]:
        return [f"{STAGED}/{job}/{found.name}" for found in self.below(f"{STAGED}/{job}")]

    def jobs_of_stream(self, job: str, stream: str | None) -> list[str]:
        """None: what killed tasks staged is removed when it is a week old. Another process may be at work on the same
        micro-batch, and what it staged is needed until then."""
        return []

    def dead_jobs(self) -> list[str]:
        """None: see sweep."""
        return []

    def end_jobs(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self.delete(self.staged(job))

    def sweep(self, job: str) -> None:
        """Remove what the job staged, and what jobs staged that nobody can be working on any more."""
        staged = self.below(STAGED)
        now = max((found.modified_s for found in staged), default=0.0)
        newest: dict[str, float] = {}
        for found in staged:
            owner = found.name.partition("/")[0]
            newest[owner] = max(newest.get(owner, 0.0), found.modified_s)
        over = {owner for owner, at in newest.items() if owner == job or now - at > KEPT_SECONDS}
        self.delete([f"{STAGED}/{one.name}" for one in staged if one.name.partition("/")[0] in over])

    # ---- commit records

    def commit_files(self, after: str = "") -> list[str]:
        return self.names(COMMITS, after=after)[0]

    def superseded(self, number: int) -> list[str]:
        """Now and then, records that are older than KEPT_SECONDS."""
        if number == 0 or number % PRUNE_EVERY:
            return []
        now = self.modified(self.commits + record_file(number))
        old = self.below(COMMITS, lambda found: now - found.modified_s <= KEPT_SECONDS)
        numbers = ((record_number(one.name), one.name) for one in old)
        return [file for found, file in numbers if found is not None and found < number]

    # ---- where logs end

    def topics(self) -> dict[str, list[int]]:
        """See Medium. One LIST."""
        topics: dict[str, list[int]] = {}
        for name in self.names()[1]:
            parsed = parse_partition_dir(name)
            if parsed is not None and parsed.kind is DirKind.LIVE:
                topics.setdefault(parsed.topic, []).append(parsed.partition)
        return {topic: sorted(partitions) for topic, partitions in topics.items()}

    def ends(
        self, keys: Iterable[TopicPartition], existing: Mapping[str, list[int]], newest: CommitRecord
    ) -> dict[TopicPartition, PartitionEnd]:
        last = {key: own[-1] for key, own in newest.by_partition().items()}
        checkpoints = Checkpoints()

        def end(key: TopicPartition) -> PartitionEnd:
            topic, partition = key
            if partition not in existing.get(topic, ()):
                return EMPTY_END
            place = PartitionLocation(topic, partition, self.path(f"{topic}-{partition}"), self.store)
            return locate_end_in_bucket(place, last.get(key), checkpoints)

        keys = list(keys)
        with ThreadPoolExecutor(self.parallel, "ends") as threads:
            return dict(zip(keys, threads.map(end, keys), strict=True))

    # ---- staged objects

    def prepare(self, record: CommitRecord) -> None:
        """Raise unless all pieces of a commit are there: one that names what is gone could never be completed."""
        wanted = {(piece.name, piece.size) for segment in record.segments for piece in segment.pieces}
        directory = f"{STAGED}/{record.job}"
        found = {(f"{directory}/{one.name}", one.size) for one in self.below(directory)} if wanted else set()
        if not wanted <= found:
            raise JobEnded(
                f"{len(wanted - found)} of {len(wanted)} staged objects are gone or have another size",
                path=self.path(min(wanted - found)[0]),
                hint="nothing was written; staged objects are removed after a week, or somebody else removed them: run "
                "the write again",
            )

    def remaining(self, record: CommitRecord) -> CommitRecord:
        """Segments whose objects are not all there."""
        created = {topic.name for topic in record.topics}

        def left(segments: list[PlannedSegment]) -> list[PlannedSegment]:
            first = segments[0]
            there = self.sizes(first.directory)
            if there or first.topic in created:
                return [segment for segment in segments if not _is_there(segment, there)]
            lost = sum(segment.records for segment in segments)
            _log.warning("%s was deleted: %d records that were committed to it are gone with it", first.directory, lost)
            return []

        with ThreadPoolExecutor(self.parallel, "remaining") as threads:
            found = threads.map(left, record.by_partition().values())
            return replace(record, segments=tuple(segment for own in found for segment in own))

    # ---- publishing

    def each(self, work: Sequence[tuple[int, Callable[[], None]]]) -> None:
        """See Medium. Small pieces of work at once, large ones after one another."""
        small = [one for size, one in work if size <= _SMALL_BYTES]
        if self.parallel == 1 or len(small) == 1:
            for one in small:
                one()
        elif small:
            with ThreadPoolExecutor(self.parallel, "publish") as threads:
                for done in [threads.submit(one) for one in small]:
                    done.result()
        for size, one in work:
            if size > _SMALL_BYTES:
                one()

    def end_publish(self, record: CommitRecord) -> None:
        """Nothing: a put is on disk when it is answered."""

    def make_topic(self, topic: NewTopic, filled: Sequence[int]) -> None:
        """partition.metadata of all its partitions, from the last one down: who looks meanwhile sees how many there
        will be. A partition without records has no other object; to readers and brokers it is an empty log."""
        topic_id = topic.id
        for partition in reversed(range(topic.partitions)):
            name = f"{topic.name}-{partition}/{PARTITION_METADATA_FILE}"
            if not self.create(name, format_partition_metadata(PartitionMetadata(topic_id))):
                with suppress(FileNotFoundError):  # refused and not shown: another writer of this commit is putting it
                    topic_id = parse_partition_metadata(self.read(name, _METADATA_BYTES)).topic_id

    def publish_segment(self, segment: PlannedSegment) -> None:
        if segment.size > self.whole_bytes and not segment.replaces_empty:
            self._upload_segment(segment)
            return
        stamper = PieceStamper(segment.base_offset, segment.leader_epoch)
        data = bytearray()
        for piece in self._stamped(segment, stamper):
            data += piece
        indexes = stamper.indexes()
        if not segment.replaces_empty:
            self._put_indexes(segment, indexes)
            self._put_log(segment, data, self.create)
        else:  # the old indexes say nothing, so a reader does without; of the new ones it would ask what is not there
            self._put_log(segment, data, self.replace_empty)
            self._put_indexes(segment, indexes)

    def _put_log(self, segment: PlannedSegment, data: bytearray, put: Callable[[str, bytes], bool]) -> None:
        name = segment_file(segment, names.LOG_SUFFIX)
        for _ in range(_LOOKS):
            if put(name, bytes(data)) or self._is_same(segment, data[: layout.BATCH_OVERHEAD]):
                return
        raise _flickers(name)

    def _is_same(self, segment: PlannedSegment, header: bytes | bytearray) -> bool:
        """True when the .log is there that was to be put, because another writer of the same commit was faster; False
        where it is not there after all. Raises CorruptLog for another one."""
        name = segment_file(segment, names.LOG_SUFFIX)
        size = self.sizes(posixpath.dirname(name)).get(posixpath.basename(name))
        if size is None:
            return False
        try:
            first = self.read(name, len(header))
        except FileNotFoundError:
            return False
        if size != segment.size or first != bytes(header):
            hint = "something else than kafkalog's sink writes to this log: stop it, and remove what it wrote there"
            raise segment_in_the_way(segment, self.path(name), hint)
        return True

    def _put_indexes(self, segment: PlannedSegment, indexes: tuple[bytes, bytes]) -> None:
        for suffix, data in zip(INDEX_SUFFIXES, indexes, strict=True):
            self._put_index(segment_file(segment, suffix), data)

    def _put_index(self, name: str, data: bytes) -> None:
        for _ in range(_LOOKS):
            if self.create(name, data):
                return
            try:
                found = self.read(name, len(data) + 1)
            except FileNotFoundError:
                continue
            if found != data:
                self.put(name, data)  # of an empty segment, or without a .log: nobody's
            return
        raise _flickers(name)

    def _upload_segment(self, segment: PlannedSegment) -> None:
        """A large .log, in parts. The object is there when the last part is, so the indexes are put before that."""
        name = segment_file(segment, names.LOG_SUFFIX)
        sizes = self.sizes(posixpath.dirname(name))
        if posixpath.basename(name) in sizes:
            first = next(self._stamped(segment, PieceStamper(segment.base_offset, segment.leader_epoch)))
            if self._is_same(segment, first[: layout.BATCH_OVERHEAD]):
                return

        def pieces() -> Iterator[bytearray]:
            stamper = PieceStamper(segment.base_offset, segment.leader_epoch)
            yield from self._stamped(segment, stamper)
            self._put_indexes(segment, stamper.indexes())

        self.upload(name, pieces, segment.size)

    def _stamped(self, segment: PlannedSegment, stamper: PieceStamper) -> Iterator[bytearray]:
        """The pieces of a segment with their offsets. Raises FileNotFoundError, KafkalogError where they are not what
        the commit was made of."""
        for piece in segment.pieces:
            yield stamper.stamp(self._read_piece(piece))
        if (stamper.next_offset, stamper.size) != (segment.next_offset, segment.size):
            raise KafkalogError(
                f"the staged objects of a segment hold {stamper.next_offset - segment.base_offset} records in "
                f"{stamper.size} bytes, the commit names {segment.records} in {segment.size}",
                topic_partition=segment.directory,
                path=self.path(segment.pieces[0].name),
                hint="somebody else changed them: restore them, or remove the commit's record, and with it its records",
            )

    def _read_piece(self, piece: StagedPiece) -> bytes:
        data = self.read(piece.name, piece.size + 1)
        if len(data) != piece.size:
            raise KafkalogError(
                f"a staged object has {len(data)} bytes, its task wrote {piece.size}",
                path=self.path(piece.name),
                hint="somebody else changed it",
            )
        return data


def _flickers(name: str) -> OSError:
    return OSError(errno.EAGAIN, f"the store says {_LOOKS} times that an object is there, and that it is not", name)


def _is_there(segment: PlannedSegment, there: Mapping[str, int]) -> bool:
    """True when a listing of the partition shows all of a segment. One that replaced an empty one may still have that
    one's indexes."""
    stem = names.segment_name(segment.base_offset)
    return (
        not segment.replaces_empty
        and there.get(stem + names.LOG_SUFFIX) == segment.size
        and {stem + names.OFFSET_INDEX_SUFFIX, stem + names.TIME_INDEX_SUFFIX} <= there.keys()
    )


PIECE_BYTES = 16 << 20
"""Size of a staged object: large enough that its request costs little, small enough that the driver can hold some."""
_PUTS_AT_ONCE = 2
"""With as many that wait, 64 MiB."""


class BucketStage:
    """Objects below kafkalog.staged. What a task that is killed leaves there, a later sink removes."""

    held_bytes = 64 << 20

    def __init__(self, bucket: Bucket, job: str) -> None:
        self._bucket = bucket
        self._job = job
        self._open: dict[str, bytearray] = {}
        self._names: list[str] = []
        self._threads: ThreadPoolExecutor | None = None
        self._running: list[Future[None]] = []

    def file_bytes(self, segment_bytes: int) -> int:
        """A segment is made of several."""
        return min(PIECE_BYTES, segment_bytes)

    def topics(self) -> dict[str, list[int]]:
        """See Stage. A topic that another sink is making has all its partitions at once: see Bucket.make_topic."""
        return self._bucket.topics()

    def begin(self, task: int, attempt: str, number: int) -> str:
        name = f"{STAGED}/{self._job}/{task}-{attempt}-{number}.log"
        self._open[name] = bytearray()
        return name

    def append(self, name: str, data: memoryview) -> None:
        self._open[name] += data

    def finish(self, name: str) -> None:
        """Put it, while the task goes on. Raises what an earlier put raised."""
        data = self._open.pop(name)
        while len(self._running) >= 2 * _PUTS_AT_ONCE:
            self._running.pop(0).result()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(min(_PUTS_AT_ONCE, self._bucket.parallel), "stage")
        self._names.append(name)
        self._running.append(self._threads.submit(self._bucket.put, name, data))

    def close(self) -> None:
        running, self._running = self._running, []
        for put in running:
            put.result()
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def discard(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
            self._threads = None
        try:
            self._bucket.delete(self._names)
        except OSError as error:
            _log.warning("staged objects are left, a later sink removes them: %s", error)

    def error(self, error: OSError) -> KafkalogError:
        return self._bucket.unwritable(error)
