"""Publication in a bucket: segments are made of staged objects, without locks or renames.

Several writers may complete the same commit at the same time, and each may stop at any step. So an object is put only
if it does not exist, and its bytes depend only on the commit's record and the staged objects. The .log of a segment is
put last, and the segments of a partition one after the other, so that a reader sees a valid log at every instant.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format import layout, names
from kafkalog_spark.format import partition_metadata as metadata
from kafkalog_spark.log.write.segment_restamping import INDEX_SUFFIXES, PieceStamper
from kafkalog_spark.sink.bucket_directory import BucketDirectory
from kafkalog_spark.sink.commit_record import NewTopic, PlannedSegment
from kafkalog_spark.sink.segment_publisher import SegmentPublisher

_METADATA_BYTES = 1000

_PUT_TRIES = 5
"""Tries of a put. While another writer puts the same object, a gateway may refuse the put and not list the object."""


@dataclass(frozen=True)
class BucketSegmentPublisher(SegmentPublisher):
    """Publishes segments in a log directory in a bucket."""

    directory: BucketDirectory

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

        self.directory.before_change("upload", name)
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
