"""Segments in a bucket, made of staged objects, without locks or renames.

Several writers may complete the same commit at the same time, and each may stop at any step. So an object is put only
if it does not exist, and its bytes depend only on the commit's record and the staged objects. The .log of a segment is
put last, and the segments of a partition one after the other, so that a reader sees a valid log at every instant.

    kafkalog.staged/<job>/<task>-<attempt>-<n>.log    whole batches of one partition, without offsets yet

There is no heartbeat object: stale objects are recognised by their age. Objects cannot be truncated, so a write to a
log that ends with a torn batch is refused.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from kafkalog_spark.errors import CorruptLog, JobEnded, KafkalogError
from kafkalog_spark.format import layout, names
from kafkalog_spark.format import partition_metadata as metadata
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.state_files import Checkpoints, leader_epochs_or_empty
from kafkalog_spark.log.write.segment_restamping import PieceStamper
from kafkalog_spark.sink.bucket_commit_log import RETENTION_SECONDS
from kafkalog_spark.sink.bucket_directory import BucketDirectory
from kafkalog_spark.sink.bucket_stage import STAGED, BucketStage
from kafkalog_spark.sink.commit_plan import PartitionEnd, partition_end
from kafkalog_spark.sink.commit_record import CommitRecord, NewTopic, PlannedSegment
from kafkalog_spark.sink.segment_target import INDEX_SUFFIXES, SegmentTarget, check_cleaned

_METADATA_BYTES = 1000
_PUT_TRIES = 5
"""Tries of a put. While another writer puts the same object, a gateway may refuse the put and not list the object."""

_REPAIR = "copy the partition's directory to a disk, let a broker load it once, and put it back; nothing was written"


@dataclass(frozen=True)
class BucketTarget(SegmentTarget):
    """Segments of a log directory in a bucket."""

    directory: BucketDirectory

    lists_new_topics_whole = True  # the last partition is made first
    join_bytes = layout.MAX_INT64  # any number of staged objects becomes one segment

    @property
    def parallel(self) -> int:  # type: ignore[override]
        return self.directory.parallel

    # Jobs of a stream end by their age alone: another process may be writing the same micro-batch, and still needs its
    # staged objects.

    def stage(self, job: str) -> BucketStage:
        return BucketStage(self.directory, job)

    def staged(self, job: str) -> list[str]:
        return [f"{STAGED}/{job}/{staged.name}" for staged in self.directory.below(f"{STAGED}/{job}")]

    def sweep(self, job: str) -> None:
        """Remove the job's objects, and those of jobs whose newest object is older than RETENTION_SECONDS."""
        staged = self.directory.below(STAGED)
        now = max((item.modified_s for item in staged), default=0.0)
        newest: dict[str, float] = {}
        for item in staged:
            owner = item.name.partition("/")[0]
            newest[owner] = max(newest.get(owner, 0.0), item.modified_s)
        ended = {owner for owner, at in newest.items() if owner == job or now - at > RETENTION_SECONDS}
        self.directory.delete([f"{STAGED}/{item.name}" for item in staged if item.name.partition("/")[0] in ended])

    def partition_dirs(self) -> Iterable[names.PartitionDir]:
        listing = self.directory.list_directory()
        directories = (names.parse_partition_dir(name) for name in listing.names if listing.is_directory(name))
        return [directory for directory in directories if directory is not None]

    def end_of(
        self, location: PartitionLocation, last: PlannedSegment | None, checkpoints: Checkpoints
    ) -> PartitionEnd:
        """Return the end of a partition.

        One LIST request suffices if the last segment is still `last`. Otherwise the end is found as readers do.
        """
        log = location.open_without_checkpoints()
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
                    "truncated",
                    path=posixpath.join(location.directory, log.segments[-1].log),
                    position=end.position,
                    offset=end.offset,
                )
        except KafkalogError as error:
            error.hint = error.hint or _REPAIR
            raise error.at(topic_partition=f"{location.topic}-{location.partition}") from None
        replaces_empty = bool(log.segments) and size == 0 and log.segments[-1].base_offset == end.offset
        epochs = leader_epochs_or_empty(location.store, location.directory)
        return partition_end(end.offset, epochs, replaces_empty=replaces_empty)

    def prepare(self, record: CommitRecord) -> None:
        """Check that all pieces exist: a commit that names missing pieces could never be completed."""
        needed = {(piece.name, piece.size) for segment in record.segments for piece in segment.pieces}
        directory = f"{STAGED}/{record.job}"
        listed = self.directory.below(directory) if needed else ()
        missing = needed - {(f"{directory}/{staged.name}", staged.size) for staged in listed}
        if missing:
            raise JobEnded(
                f"{len(missing)} of {len(needed)} staged objects are gone or have another size",
                path=self.directory.path(min(missing)[0]),
                hint="nothing was written; staged objects are removed after a week, or another process removed them: "
                "run the write again",
            )

    def remaining(self, record: CommitRecord) -> CommitRecord:
        created = {topic.name for topic in record.topics}

        def is_complete(segment: PlannedSegment, sizes: Mapping[str, int]) -> bool:
            stem = names.segment_name(segment.base_offset)
            has_indexes = {stem + suffix for suffix in INDEX_SUFFIXES} <= sizes.keys()
            # The indexes may be those of the empty segment that is replaced.
            return has_indexes and not segment.replaces_empty and sizes.get(stem + names.LOG_SUFFIX) == segment.size

        def incomplete(segments: list[PlannedSegment]) -> list[PlannedSegment]:
            sizes = self.directory.sizes(segments[0].directory)
            if sizes or segments[0].topic in created:
                return [segment for segment in segments if not is_complete(segment, sizes)]
            self.warn_deleted(segments)
            return []

        remaining = self.run([partial(incomplete, segments) for segments in record.segments_by_partition().values()])
        return replace(record, segments=tuple(segment for segments in remaining for segment in segments))

    def make_topic(self, topic: NewTopic, filled: Sequence[int]) -> None:
        """Put the last partition first, so that a listing shows how many there will be.

        A partition without records has only partition.metadata; readers and brokers treat it as an empty log.
        """
        topic_id = topic.id
        for partition in reversed(range(topic.partitions)):
            name = f"{topic.name}-{partition}/{metadata.PARTITION_METADATA_FILE}"
            if not self.directory.put_if_absent(name, metadata.format_partition_metadata(topic_id)):
                with suppress(FileNotFoundError):  # another writer of this commit is putting it at the moment
                    topic_id = metadata.parse_partition_metadata(self.directory.read(name, _METADATA_BYTES))

    def publish_segment(self, segment: PlannedSegment) -> None:
        if segment.size > self.directory.max_single_put_bytes and not segment.replaces_empty:
            self._upload_segment(segment)
            return
        stamper = PieceStamper(segment.base_offset, segment.leader_epoch)
        data = b"".join(self._stamped(segment, stamper))
        indexes = stamper.build_indexes()
        if not segment.replaces_empty:
            self._put_indexes(segment, indexes)
            self._put_log(segment, data, self.directory.put_if_absent)
        else:  # Readers ignore the old, empty indexes. The new ones would point to bytes that do not exist yet.
            self._put_log(segment, data, self.directory.replace_empty)
            self._put_indexes(segment, indexes)

    def _put_log(self, segment: PlannedSegment, data: bytes, put: Callable[[str, bytes], bool]) -> None:
        name, header = segment.file(names.LOG_SUFFIX), data[: layout.BATCH_OVERHEAD]
        _retry_put(name, lambda: put(name, data) or self._is_published(segment, header))

    def _is_published(self, segment: PlannedSegment, header: bytes | bytearray) -> bool:
        """Return True if another writer of this commit has put the .log, False if it does not exist.

        Raises:
            CorruptLog: If there is a .log of the same name with other content.
        """
        name = segment.file(names.LOG_SUFFIX)
        size = self.directory.sizes(segment.directory).get(posixpath.basename(name))
        if size is None:
            return False
        try:
            first = self.directory.read(name, len(header))
        except FileNotFoundError:
            return False
        if size != segment.size or first != bytes(header):
            raise self.conflict(
                segment,
                "another program than kafkalog's sink writes to this log: stop it, and remove its records",
            )
        return True

    def _put_indexes(self, segment: PlannedSegment, indexes: tuple[bytes, bytes]) -> None:
        for suffix, data in zip(INDEX_SUFFIXES, indexes, strict=True):
            _retry_put(segment.file(suffix), partial(self._put_index, segment.file(suffix), data))

    def _put_index(self, name: str, data: bytes) -> bool:
        if self.directory.put_if_absent(name, data):
            return True
        try:
            if self.directory.read(name, len(data) + 1) != data:
                self.directory.replace(name, data)  # the present index belongs to an empty segment, or to none
        except FileNotFoundError:
            return False
        return True

    def _upload_segment(self, segment: PlannedSegment) -> None:
        """Upload the .log in parts. The object appears with the last part, so the indexes are put before that part."""
        name = segment.file(names.LOG_SUFFIX)
        if posixpath.basename(name) in self.directory.sizes(segment.directory):
            first = next(self._stamped(segment, PieceStamper(segment.base_offset, segment.leader_epoch)))
            if self._is_published(segment, first[: layout.BATCH_OVERHEAD]):
                return

        def pieces() -> Iterator[bytearray]:
            stamper = PieceStamper(segment.base_offset, segment.leader_epoch)
            yield from self._stamped(segment, stamper)
            self._put_indexes(segment, stamper.build_indexes())

        self.directory.step("upload", name)
        self.directory.store.upload(self.directory.path(name), pieces, segment.size)

    def _stamped(self, segment: PlannedSegment, stamper: PieceStamper) -> Iterator[bytearray]:
        """Yield the pieces of a segment with their offsets assigned.

        Raises:
            FileNotFoundError: If a piece is gone.
            KafkalogError: If the pieces are not those that were committed.
        """
        for piece in segment.pieces:
            data = self.directory.read(piece.name, piece.size + 1)
            if len(data) != piece.size:
                raise KafkalogError(
                    f"a staged object has {len(data)} bytes, but its task wrote {piece.size}",
                    path=self.directory.path(piece.name),
                    hint="another process changed it",
                )
            yield stamper.stamp(data)
        if (stamper.next_offset, stamper.size) != (segment.next_offset, segment.size):
            raise KafkalogError(
                f"the staged objects of a segment hold {stamper.next_offset - segment.base_offset} records in "
                f"{stamper.size} bytes, but the commit record says {segment.records} records in {segment.size} bytes",
                topic_partition=segment.directory,
                path=self.directory.path(segment.pieces[0].name),
                hint="another process changed them: restore them, or give up the records and remove the commit record",
            )


def _retry_put(name: str, put: Callable[[], bool]) -> None:
    """Call `put` until it returns True. Raises OSError after _PUT_TRIES calls."""
    if not any(put() for _ in range(_PUT_TRIES)):
        reason = f"the store refused {_PUT_TRIES} times to put an object that does not exist"
        raise OSError(errno.EAGAIN, reason, name)
