"""Publication on a disk: staged files are moved into the directories of their partitions.

The .log of each segment is moved last. Until then brokers and readers see the log as it was before: they ignore or
remove an index without a .log. The exception is a log that ends with an empty segment of the same base offset: its
indexes are removed, then the .log is moved, then the new indexes, with an fsync of the directory between these steps.
Otherwise the entries of the new indexes could be taken for those of the empty .log.

A crash of the machine may keep any of the renames that were not followed by an fsync of the directory. Therefore the
directory is synced before the next segment of the same partition is moved: no later segment survives without an
earlier one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark import errors
from kafkalog_spark.format import atomic_file, checkpoint, fsync, names, regular_file
from kafkalog_spark.format import partition_metadata as metadata
from kafkalog_spark.format.producer_snapshot import format_producer_snapshot, read_producer_snapshot
from kafkalog_spark.format.regular_file import descriptor, write_all
from kafkalog_spark.log.write.segment_restamping import INDEX_SUFFIXES
from kafkalog_spark.sink.commit_record import CommitRecord, NewTopic, PlannedSegment
from kafkalog_spark.sink.jobs import staged_log
from kafkalog_spark.sink.local_directory import LocalDirectory
from kafkalog_spark.sink.segment_publisher import SegmentPublisher

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LocalSegmentPublisher(SegmentPublisher):
    """Publishes segments in a log directory on a disk."""

    directory: LocalDirectory

    def make_topic(self, topic: NewTopic, filled: Sequence[int]) -> None:
        """Create the directories of a topic, with an empty segment in each partition that is not in `filled`."""
        directories = [self.directory.log_dir / f"{topic.name}-{partition}" for partition in range(topic.partitions)]
        present_ids = (
            metadata.read_partition_metadata(path / metadata.PARTITION_METADATA_FILE) for path in directories
        )
        # A broker that ran in between may have given the topic another ID.
        topic_id = next((present_id for present_id in present_ids if present_id is not None), topic.id)
        data = metadata.format_partition_metadata(topic_id)
        for partition, directory in enumerate(directories):
            self.directory.before_change("mkdir", directory)
            directory.mkdir(fsync.DIRECTORY_MODE, exist_ok=True)
            if metadata.read_partition_metadata(directory / metadata.PARTITION_METADATA_FILE) is None:
                self.directory.replace(f"{directory.name}/{metadata.PARTITION_METADATA_FILE}", data)
            if partition not in filled and not any(directory.glob("*" + names.LOG_SUFFIX)):
                log = directory / (names.segment_name(0) + names.LOG_SUFFIX)
                self.directory.before_change("empty segment", log)
                for suffix in (*INDEX_SUFFIXES, names.LOG_SUFFIX):  # existing files stay
                    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
                    os.close(os.open(log.with_suffix(suffix), flags, regular_file.FILE_MODE))
                self.directory.fsync_directory(directory)
        self.directory.fsync_directory(self.directory.log_dir)

    def publish_segment(self, segment: PlannedSegment) -> None:
        staged = staged_log(self.directory.log_dir, segment)
        target = self.directory.log_dir / segment.file(names.LOG_SUFFIX)
        replaces_empty = target.exists()
        if replaces_empty:
            if target.stat().st_size:
                raise self.conflict(segment, "another process wrote to the log without the directory's lock")
            self.directory.delete([segment.file(suffix) for suffix in INDEX_SUFFIXES])
            self.sync_published(segment)
            self.directory.rename(staged, target)
            self.sync_published(segment)
        for suffix in INDEX_SUFFIXES:
            self.directory.rename(staged.with_suffix(suffix), target.with_suffix(suffix))
        if not replaces_empty:
            self.directory.rename(staged, target)

    def sync_published(self, segment: PlannedSegment) -> None:
        self.directory.fsync_directory(self.directory.log_dir / segment.directory)

    def end_publish(self, record: CommitRecord) -> None:
        """Flush all moved files, then write producer snapshots and recovery points as a broker does."""
        by_partition = record.segments_by_partition()
        snapshots: list[Path] = []

        def written() -> Iterator[Path]:
            for segments in by_partition.values():
                data = self._snapshot_at(segments[0])
                if data is not None:
                    # The records here have no producers, so the state at the new end is that at the old one.
                    stem = names.segment_name(segments[-1].next_offset)
                    path = self.directory.log_dir / segments[0].directory / (stem + names.PRODUCER_SNAPSHOT_SUFFIX)
                    aside = path.with_name(path.name + atomic_file.TEMPORARY_SUFFIX)
                    self.directory.before_change("write", path)
                    with descriptor(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
                        write_all(fd, data)
                    snapshots.append(path)
                    yield aside

        self.directory.flush(written())
        for path in snapshots:
            self.directory.rename(path.with_name(path.name + atomic_file.TEMPORARY_SUFFIX), path)
        self.directory.flush(
            [
                self.directory.log_dir,
                *(self.directory.log_dir / segments[0].directory for segments in by_partition.values()),
            ]
        )
        flushed = {key: segments[-1].next_offset for key, segments in by_partition.items()}
        created = {(topic.name, n): 0 for topic in record.topics for n in range(topic.partitions)}
        try:
            points = checkpoint.read_offset_checkpoint(self.directory.log_dir / checkpoint.RECOVERY_POINT_CHECKPOINT)
        except (errors.CorruptFile, errors.UnsupportedFormat) as error:
            _log.warning("%s; the file is not changed, and a broker will check the logs from their beginning", error)
            return
        # All records below these offsets are on disk, so a broker need not scan them after a crash.
        raised = {key: offset for key, offset in (created | flushed).items() if offset > points.get(key, -1)}
        if raised:
            data = checkpoint.format_offset_checkpoint(points | raised)
            self.directory.replace(checkpoint.RECOVERY_POINT_CHECKPOINT, data)

    def _snapshot_at(self, segment: PlannedSegment) -> bytes | None:
        """Return the producer snapshot at the base offset of a segment; None if there is no valid one."""
        if segment.base_offset == 0:
            return format_producer_snapshot([])
        try:
            path = self.directory.log_dir / segment.file(names.PRODUCER_SNAPSHOT_SUFFIX)
            return format_producer_snapshot(read_producer_snapshot(path))
        except (OSError, errors.KafkalogError):
            return None  # a broker drops such a snapshot too, and reads the log instead
