"""The second half of a commit: what is decided is brought into its places, by whoever comes next, twice if need be.

Of each segment the .log is moved last, so that what a broker or reader meets in between is a whole log: an index
without a .log is ignored, or removed by a broker and made again here. Only where the log ends with an empty segment of
the same base offset is the .log moved first, without indexes: an index that speaks of records that are not there would
be taken for that segment's.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark.errors import CorruptFile, CorruptLog, UnsupportedFormat
from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    format_leader_epochs,
    format_offset_checkpoint,
    read_offset_checkpoint,
)
from kafkalog_spark.log.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    format_partition_metadata,
    read_partition_metadata,
)
from kafkalog_spark.sink.commit_plan import TopicPartition
from kafkalog_spark.sink.disk import Disk
from kafkalog_spark.sink.partition_end import PartitionEnd
from kafkalog_spark.sink.sink_record import NewTopic, PendingCommit, PlannedSegment
from kafkalog_spark.sink.staging import INDEX_SUFFIXES

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Publisher:
    """Moves the staged files of one commit. Called with both locks held."""

    log_dir: Path
    disk: Disk

    def publish(self, pending: PendingCommit, ends: Mapping[TopicPartition, PartitionEnd]) -> None:
        """Move every staged file of `pending` that is left. ends: where those partitions' logs end.

        On return all is on disk. Raises OSError, CorruptLog when a segment is in the way; doing it again goes on.
        """
        by_partition: dict[TopicPartition, list[PlannedSegment]] = {}
        for segment in pending.segments:
            by_partition.setdefault((segment.topic, segment.partition), []).append(segment)
        for topic in pending.topics:
            self._make_topic(topic, [partition for name, partition in by_partition if name == topic.name])
        written = [self.log_dir]
        for key, segments in by_partition.items():
            written += self._publish_partition(key, segments, ends[key])
        self.disk.flush(written)
        flushed = {key: segments[-1].next_offset for key, segments in by_partition.items()}
        created = {(topic.name, n): 0 for topic in pending.topics for n in range(topic.partitions)}
        self._raise_recovery_points(created | flushed)

    def finish_moves(self, segments: Iterable[PlannedSegment]) -> None:
        """After a crash: of segments whose .log has been moved, the indexes that have not, and the directories."""
        for segment in segments:
            staged, target = self._paths(segment)
            for suffix in INDEX_SUFFIXES:
                if staged.with_suffix(suffix).exists() and not target.with_suffix(suffix).exists():
                    self.disk.rename(staged.with_suffix(suffix), target.with_suffix(suffix))
        self.disk.flush(sorted({self._paths(segment)[1].parent for segment in segments}))

    def _paths(self, segment: PlannedSegment) -> tuple[Path, Path]:
        """Where the .log is staged, and its place."""
        directory = self.log_dir / f"{segment.topic}-{segment.partition}"
        name = names.segment_name(segment.base_offset) + names.LOG_SUFFIX
        return self.log_dir / segment.file, directory / name

    def _make_topic(self, topic: NewTopic, filled: Collection[int]) -> None:
        """The directories of all its partitions; those that are not to be filled get an empty segment."""
        topic_id = self._topic_id(topic)
        for partition in range(topic.partitions):
            directory = self.log_dir / f"{topic.name}-{partition}"
            self.disk.mkdir(directory)
            if read_partition_metadata(directory / PARTITION_METADATA_FILE) is None:
                metadata = format_partition_metadata(PartitionMetadata(topic_id))
                self.disk.replace_file(directory / PARTITION_METADATA_FILE, metadata)
            if partition not in filled and not any(directory.glob("*" + names.LOG_SUFFIX)):
                self.disk.write_log(directory / (names.segment_name(0) + names.LOG_SUFFIX))
                self.disk.fsync_directory(directory)
        self.disk.fsync_directory(self.log_dir)

    def _topic_id(self, topic: NewTopic) -> uuid.UUID:
        """The planned id, unless a broker that came in between has given the topic another."""
        for partition in range(topic.partitions):
            path = self.log_dir / f"{topic.name}-{partition}" / PARTITION_METADATA_FILE
            metadata = read_partition_metadata(path)
            if metadata is not None:
                return metadata.topic_id
        return topic.id

    def _publish_partition(self, key: TopicPartition, segments: list[PlannedSegment], end: PartitionEnd) -> list[Path]:
        """Returns what is to be flushed."""
        directory = self.log_dir / f"{key[0]}-{key[1]}"
        if end.epochs is not None:
            self.disk.replace_file(directory / LEADER_EPOCH_CHECKPOINT, format_leader_epochs(end.epochs))
        for segment in segments:
            self._move(segment)
        if end.snapshot is not None:
            # The records here have no producers, so the state at the new end is that at the old one.
            # A snapshot that a crash of the machine empties is dropped by brokers, and made again from the log.
            name = names.segment_name(segments[-1].next_offset) + names.PRODUCER_SNAPSHOT_SUFFIX
            self.disk.replace_file(directory / name, end.snapshot, sync=False)
            return [directory / name, directory]
        return [directory]

    def _move(self, segment: PlannedSegment) -> None:
        staged, target = self._paths(segment)
        if not target.exists():
            for suffix in INDEX_SUFFIXES:
                self.disk.rename(staged.with_suffix(suffix), target.with_suffix(suffix))
            self.disk.rename(staged, target)
            return
        if target.stat().st_size:
            raise CorruptLog(
                f"there is a segment where offset {segment.base_offset} was to be written",
                topic_partition=f"{segment.topic}-{segment.partition}",
                path=str(target),
                hint="somebody wrote to the log without the directory's lock",
            )
        for suffix in INDEX_SUFFIXES:
            self.disk.unlink(target.with_suffix(suffix))
        self.disk.rename(staged, target)
        for suffix in INDEX_SUFFIXES:
            self.disk.rename(staged.with_suffix(suffix), target.with_suffix(suffix))

    def _raise_recovery_points(self, flushed: Mapping[TopicPartition, int]) -> None:
        """Everything below these offsets is on disk: a broker that starts after a crash need not scan it."""
        path = self.log_dir / RECOVERY_POINT_CHECKPOINT
        try:
            points = read_offset_checkpoint(path)
        except (CorruptFile, UnsupportedFormat) as error:
            _log.warning("%s; it is left as it is, and a broker will check the logs from their beginning", error)
            return
        raised = {key: offset for key, offset in flushed.items() if offset > points.get(key, -1)}
        if raised:
            self.disk.replace_file(path, format_offset_checkpoint(points | raised))
