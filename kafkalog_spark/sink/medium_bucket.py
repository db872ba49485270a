"""Log directory in a bucket: requests, and segments that are made of staged objects. There is no lock and no rename.

Several writers may complete a commit at once, and each may stop anywhere: every object is put where none is, with bytes
that follow from the record and the staged objects alone. Of each segment the .log comes last, and a partition's
segments come one after the other: who reads meanwhile sees a whole log.

    kafkalog.commits/<20 digits>.json, kafkalog.commits/done    the commit log
    kafkalog.staged/<job>/<task>-<attempt>-<n>.log              whole batches of one partition, without offsets yet

No object says that a job lives: what it leaves is known by its age. Objects cannot be cut, so a log that would have to
be is refused.
"""

from __future__ import annotations

import errno
import logging
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from kafkalog_spark.errors import CorruptLog, JobEnded, KafkalogError
from kafkalog_spark.format import layout, names
from kafkalog_spark.format import partition_metadata as metadata
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.state_files import Checkpoints, leader_epochs
from kafkalog_spark.log.write.segment_restamping import PieceStamper
from kafkalog_spark.sink.commit import record_file
from kafkalog_spark.sink.commit_plan import CommitRecord, NewTopic, PartitionEnd, PlannedSegment, leader_epochs_at
from kafkalog_spark.sink.medium import INDEX_SUFFIXES, Medium, check_cleaned
from kafkalog_spark.store.interface import Buffer, Listing
from kafkalog_spark.store.object_store import AgedObject, ObjectStore
from kafkalog_spark.store.storage_options import StorageOptions

_log = logging.getLogger(__name__)

COMMITS = "kafkalog.commits"
STAGED = "kafkalog.staged"

WHOLE_BYTES = 64 << 20
"""Largest object that is put whole, if there is none. Parts of larger ones know no condition: it is looked before."""

_METADATA_BYTES = 1000
_LOOKS = 5
"""A gateway may refuse a put because of an object that it does not show yet, as another writer is putting it."""

KEPT_SECONDS = 7 * 24 * 3600
"""How long a record stays after a newer one was put: a writer that looked at the commits before, and stopped for so
long, must still find its number taken. Writers look again after commit.LOOK_SECONDS, and S3 refuses requests that were
signed 15 minutes ago. Also how long unused staged objects stay, longer than any job: transactional.id.expiration.ms."""

_REPAIR = "copy the partition's directory to a disk, let a broker load it once, and put it back; nothing was written"

PRUNE_EVERY = 100  # commits after which old records are removed: a listing and some deletions


@dataclass(frozen=True)
class Bucket(Medium):
    """Log directory in a bucket. root: normalised."""

    root: str
    store: ObjectStore
    parallel: int = 8
    whole_bytes: int = WHOLE_BYTES

    commits = COMMITS + "/"
    remote = True
    join_bytes = layout.MAX_INT64  # a segment is made of several objects
    word = "an object"
    needs = "writing needs to list, get, put and delete objects"

    @property
    def storage(self) -> StorageOptions:  # type: ignore[override]
        return self.store.options

    # Requests.

    def _list(self, directory: str = "", after: str = "") -> Listing:
        """Nothing where there is no directory. One LIST."""
        try:
            return self.store.list(self.path(directory), after)
        except FileNotFoundError:
            return Listing.of({}, ())

    def listing(self) -> list[str]:
        return self._list().names

    def sizes(self, directory: str) -> dict[str, int]:
        return {name: facts.size for name, facts in self._list(directory).files.items()}

    def below(self, directory: str, enough: Callable[[AgedObject], bool] = lambda _: False) -> Sequence[AgedObject]:
        return self.store.below(self.path(directory), enough)

    def read(self, name: str, most: int) -> bytes:
        return self.store.read_all(self.path(name), most)

    def expect_put_if_absent(self) -> None:
        self.step("probe", COMMITS)
        self.store.expect_conditional_put(self.path(COMMITS))

    def create(self, name: str, data: Buffer) -> bool:
        self.step("create", name)
        return self.store.put_if_absent(self.path(name), data)

    def replace(self, name: str, data: Buffer, *, sync: bool = True) -> None:
        self.step("put", name)
        self.store.put(self.path(name), data)

    def replace_empty(self, name: str, data: Buffer) -> bool:
        self.step("replace", name)
        return self.store.replace_empty(self.path(name), data)

    def delete(self, names: Sequence[str]) -> None:
        if names:
            self.step("delete", names[0])
            self.store.delete([self.path(name) for name in names])

    # Jobs. Those of a stream are ended by their age alone: another process may be at work on the same micro-batch, and
    # what it staged is needed until then.

    def stage(self, job: str) -> BucketStage:
        return BucketStage(self, job)

    def staged(self, job: str) -> list[str]:
        return [f"{STAGED}/{job}/{staged.name}" for staged in self.below(f"{STAGED}/{job}")]

    def sweep(self, job: str) -> None:
        """Remove of other jobs what is older than KEPT_SECONDS."""
        staged = self.below(STAGED)
        now = max((item.modified_s for item in staged), default=0.0)
        newest: dict[str, float] = {}
        for item in staged:
            owner = item.name.partition("/")[0]
            newest[owner] = max(newest.get(owner, 0.0), item.modified_s)
        over = {owner for owner, at in newest.items() if owner == job or now - at > KEPT_SECONDS}
        self.delete([f"{STAGED}/{item.name}" for item in staged if item.name.partition("/")[0] in over])

    # Commit records.

    def commit_files(self, after: str = "") -> list[str]:
        return sorted(self._list(COMMITS, after).files)

    def superseded(self, number: int) -> list[str]:
        """Now and then those that are older than KEPT_SECONDS."""
        if number == 0 or number % PRUNE_EVERY:
            return []
        now = self.store.modified(self.path(self.commits + record_file(number)))
        return [record.name for record in self.below(COMMITS, lambda record: now - record.modified_s <= KEPT_SECONDS)]

    # Segments.

    def partition_dirs(self) -> Iterable[names.PartitionDir]:
        listing = self._list()
        directories = (names.parse_partition_dir(name) for name in listing.names if listing.is_directory(name))
        return [directory for directory in directories if directory is not None]

    def end_of(
        self, location: PartitionLocation, last: PlannedSegment | None, checkpoints: Checkpoints
    ) -> PartitionEnd:
        """By one LIST, if the last segment is still `last`; else as readers do. What lies before it is believed."""
        log = location.open_unread()
        if (
            last is not None
            and log.segments
            and log.segments[-1].base_offset == last.base_offset
            and log.size_of(len(log.segments) - 1) == last.size
        ):
            return PartitionEnd(last.next_offset, last.leader_epoch, None)
        try:
            check_cleaned(log, _REPAIR)
            log = location.open(checkpoints=checkpoints)
            end = log.log_end
            size = log.size_of(len(log.segments) - 1) if log.segments else 0
            if size != end.position:
                raise CorruptLog(
                    f"the last segment has {size - end.position} bytes after its last whole batch, at byte "
                    f"{end.position}, as a crash or a copy of a running broker's file leaves them; an object cannot be "
                    "cut",
                    path=posixpath.join(location.directory, log.segments[-1].log),
                    position=end.position,
                    offset=end.offset,
                )
        except KafkalogError as error:
            error.hint = error.hint or _REPAIR
            raise error.at(topic_partition=f"{location.topic}-{location.partition}") from None
        replaces = bool(log.segments) and size == 0 and log.segments[-1].base_offset == end.offset
        epochs = leader_epochs(location.store, location.directory)
        return PartitionEnd(end.offset, *leader_epochs_at(epochs, end.offset), replaces)

    def prepare(self, record: CommitRecord) -> None:
        """A commit that names pieces that are gone could never be completed."""
        needed = {(piece.name, piece.size) for segment in record.segments for piece in segment.pieces}
        directory = f"{STAGED}/{record.job}"
        gone = needed and needed - {(f"{directory}/{staged.name}", staged.size) for staged in self.below(directory)}
        if gone:
            raise JobEnded(
                f"{len(gone)} of {len(needed)} staged objects are gone or have another size",
                path=self.path(min(gone)[0]),
                hint="nothing was written; staged objects are removed after a week, or somebody else removed them: run "
                "the write again",
            )

    def remaining(self, record: CommitRecord) -> CommitRecord:
        created = {topic.name for topic in record.topics}

        def is_complete(segment: PlannedSegment, sizes: Mapping[str, int]) -> bool:
            stem = names.segment_name(segment.base_offset)
            has_indexes = {stem + suffix for suffix in INDEX_SUFFIXES} <= sizes.keys()
            # where an empty segment is replaced, they may be that one's
            return has_indexes and not segment.replaces_empty and sizes.get(stem + names.LOG_SUFFIX) == segment.size

        def left(segments: list[PlannedSegment]) -> list[PlannedSegment]:
            sizes = self.sizes(segments[0].directory)
            if sizes or segments[0].topic in created:
                return [segment for segment in segments if not is_complete(segment, sizes)]
            self.warn_deleted(segments)
            return []

        remaining = self.run([partial(left, segments) for segments in record.by_partition().values()])
        return replace(record, segments=tuple(segment for segments in remaining for segment in segments))

    def make_topic(self, topic: NewTopic, filled: Sequence[int]) -> None:
        """From the last partition down: who looks meanwhile sees how many there will be. One without records has
        partition.metadata alone; to readers and brokers it is an empty log."""
        topic_id = topic.id
        for partition in reversed(range(topic.partitions)):
            name = f"{topic.name}-{partition}/{metadata.PARTITION_METADATA_FILE}"
            if not self.create(name, metadata.format_partition_metadata(topic_id)):
                with suppress(FileNotFoundError):  # refused and not shown: another writer of this commit is putting it
                    topic_id = metadata.parse_partition_metadata(self.read(name, _METADATA_BYTES))

    def publish_segment(self, segment: PlannedSegment) -> None:
        if segment.size > self.whole_bytes and not segment.replaces_empty:
            self._upload_segment(segment)
            return
        stamper = PieceStamper(segment.base_offset, segment.leader_epoch)
        data = b"".join(self._stamped(segment, stamper))
        indexes = stamper.indexes()
        if not segment.replaces_empty:
            self._put_indexes(segment, indexes)
            self._put_log(segment, data, self.create)
        else:  # the old indexes say nothing, so a reader does without; of the new ones it would ask what is not there
            self._put_log(segment, data, self.replace_empty)
            self._put_indexes(segment, indexes)

    def _put_log(self, segment: PlannedSegment, data: bytes, put: Callable[[str, bytes], bool]) -> None:
        name, header = segment.file(names.LOG_SUFFIX), data[: layout.BATCH_OVERHEAD]
        _until_settled(name, lambda: put(name, data) or self._is_same(segment, header))

    def _is_same(self, segment: PlannedSegment, header: bytes | bytearray) -> bool:
        """True when the .log is there that was to be put, because another writer of the same commit was faster; False
        where it is not there after all. Raises CorruptLog for another one."""
        name = segment.file(names.LOG_SUFFIX)
        size = self.sizes(segment.directory).get(posixpath.basename(name))
        if size is None:
            return False
        try:
            first = self.read(name, len(header))
        except FileNotFoundError:
            return False
        if size != segment.size or first != bytes(header):
            raise self.in_the_way(
                segment,
                "something else than kafkalog's sink writes to this log: stop it, and remove what it wrote there",
            )
        return True

    def _put_indexes(self, segment: PlannedSegment, indexes: tuple[bytes, bytes]) -> None:
        for suffix, data in zip(INDEX_SUFFIXES, indexes, strict=True):
            _until_settled(segment.file(suffix), partial(self._put_index, segment.file(suffix), data))

    def _put_index(self, name: str, data: bytes) -> bool:
        if self.create(name, data):
            return True
        try:
            if self.read(name, len(data) + 1) != data:
                self.replace(name, data)  # of an empty segment, or without a .log: nobody's
        except FileNotFoundError:
            return False
        return True

    def _upload_segment(self, segment: PlannedSegment) -> None:
        """In parts. The object is there when the last part is, so the indexes are put before that."""
        name = segment.file(names.LOG_SUFFIX)
        if posixpath.basename(name) in self.sizes(segment.directory):
            first = next(self._stamped(segment, PieceStamper(segment.base_offset, segment.leader_epoch)))
            if self._is_same(segment, first[: layout.BATCH_OVERHEAD]):
                return

        def pieces() -> Iterator[bytearray]:
            stamper = PieceStamper(segment.base_offset, segment.leader_epoch)
            yield from self._stamped(segment, stamper)
            self._put_indexes(segment, stamper.indexes())

        self.step("upload", name)
        self.store.upload(self.path(name), pieces, segment.size)

    def _stamped(self, segment: PlannedSegment, stamper: PieceStamper) -> Iterator[bytearray]:
        """Pieces with their offsets. Raises FileNotFoundError, KafkalogError where they are not what was committed."""
        for piece in segment.pieces:
            data = self.read(piece.name, piece.size + 1)
            if len(data) != piece.size:
                raise KafkalogError(
                    f"a staged object has {len(data)} bytes, its task wrote {piece.size}",
                    path=self.path(piece.name),
                    hint="somebody else changed it",
                )
            yield stamper.stamp(data)
        if (stamper.next_offset, stamper.size) != (segment.next_offset, segment.size):
            raise KafkalogError(
                f"the staged objects of a segment hold {stamper.next_offset - segment.base_offset} records in "
                f"{stamper.size} bytes, the commit names {segment.records} in {segment.size}",
                topic_partition=segment.directory,
                path=self.path(segment.pieces[0].name),
                hint="somebody else changed them: restore them, or remove the commit's record, and with it its records",
            )


def _until_settled(name: str, put: Callable[[], bool]) -> None:
    if not any(put() for _ in range(_LOOKS)):
        raise OSError(errno.EAGAIN, f"the store says {_LOOKS} times that an object is there, and that it is not", name)


_PUTS_AT_ONCE = 2  # with as many that wait, 64 MiB


class BucketStage:
    """Objects below kafkalog.staged. What a task that is killed leaves there, a later sink removes."""

    piece_bytes = 16 << 20
    """Large enough that a request costs little, small enough that the driver can hold some."""
    held_bytes = 64 << 20

    def __init__(self, bucket: Bucket, job: str) -> None:
        self._bucket = bucket
        self._job = job
        self._open: dict[str, bytearray] = {}
        self._names: list[str] = []
        self._threads = ThreadPoolExecutor(min(_PUTS_AT_ONCE, bucket.parallel), "stage")
        self._running: list[Future[None]] = []

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
        self._names.append(name)
        self._running.append(self._threads.submit(self._bucket.replace, name, data))

    def close(self) -> None:
        running, self._running = self._running, []
        for put in running:
            put.result()
        self._threads.shutdown()

    def discard(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        try:
            self._bucket.delete(self._names)
        except OSError as error:
            _log.warning("staged objects are left, a later sink removes them: %s", error)
