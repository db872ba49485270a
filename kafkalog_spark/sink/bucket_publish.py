"""The second half of a commit in a bucket: its record says what is to be there, and whoever comes makes it.

Several may do so at once, and each may stop anywhere: every object is put where none is, with bytes that follow from
the record and the staged objects alone. Of each segment the .log comes last, and a partition's segments come one after
the other: who reads meanwhile sees a whole log.
"""

from __future__ import annotations

import errno
import logging
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptLog, KafkalogError
from kafkalog_spark.log.format import layout, names
from kafkalog_spark.log.format.checkpoint import LEADER_EPOCH_CHECKPOINT, format_leader_epochs
from kafkalog_spark.log.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    format_partition_metadata,
    parse_partition_metadata,
)
from kafkalog_spark.log.write.segment_pieces import PieceStamper
from kafkalog_spark.sink.bucket import Bucket
from kafkalog_spark.sink.bucket_record import BucketRecord, BucketSegment, StagedPiece
from kafkalog_spark.sink.sink_record import NewTopic

_log = logging.getLogger(__name__)

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
