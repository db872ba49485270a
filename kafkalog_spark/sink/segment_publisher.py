"""Publication of a committed write: its segments become parts of their logs, on a disk or in a bucket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

from kafkalog_spark.errors import CorruptLog
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, format_leader_epochs
from kafkalog_spark.sink.commit_record import CommitRecord, NewTopic, PlannedSegment
from kafkalog_spark.sink.log_directory import LogDirectory

_SMALL_BYTES = 8 << 20
"""Partitions whose segments are at most this large are published in parallel, others one after the other. So the driver
holds at most LogDirectory.parallel times _SMALL_BYTES, or twice BucketDirectory.max_single_put_bytes."""


class SegmentPublisher(ABC):
    """Publishes the segments of a commit. All methods raise OSError."""

    directory: LogDirectory

    def publish(self, record: CommitRecord) -> None:
        """Publish the segments of a commit. Idempotent.

        Raises:
            FileNotFoundError: If a staged file is gone: lost, or removed by another writer that completed the commit.
            OSError, CorruptLog: As publish_segment.
        """
        by_partition = record.segments_by_partition()
        filled = {topic.name: [key[1] for key in by_partition if key[0] == topic.name] for topic in record.topics}
        self.directory.run([partial(self.make_topic, topic, filled[topic.name]) for topic in record.topics])
        large = {key for key, own in by_partition.items() if max(segment.size for segment in own) > _SMALL_BYTES}
        self.directory.run(
            [partial(self._publish_partition, own) for key, own in by_partition.items() if key not in large]
        )
        for key in by_partition:
            if key in large:
                self._publish_partition(by_partition[key])
        self.end_publish(record)

    def _publish_partition(self, segments: Sequence[PlannedSegment]) -> None:
        first = segments[0]
        if first.epochs is not None:
            self.directory.replace(f"{first.directory}/{LEADER_EPOCH_CHECKPOINT}", format_leader_epochs(first.epochs))
        for number, segment in enumerate(segments):
            if number:
                self.sync_published(segments[number - 1])
            self.publish_segment(segment)

    @abstractmethod
    def make_topic(self, topic: NewTopic, filled: Sequence[int]) -> None:
        """Make all partitions of a topic.

        Args:
            topic: The topic.
            filled: Partitions to which segments of the same commit are published next.
        """

    @abstractmethod
    def publish_segment(self, segment: PlannedSegment) -> None:
        """Make a segment part of its log. Idempotent; a reader sees a valid log at every instant.

        Raises:
            CorruptLog: If another segment has its base offset.
        """

    def sync_published(self, segment: PlannedSegment) -> None:  # noqa: B027
        """Wait until the names of a published segment are on disk, so that no later one survives a crash without it."""

    def end_publish(self, record: CommitRecord) -> None:  # noqa: B027
        """Flush all published segments to disk."""

    def conflict(self, segment: PlannedSegment, hint: str) -> CorruptLog:
        """Return the error for a segment of another program at the base offset of a planned segment."""
        return CorruptLog(
            f"another program has written a segment at offset {segment.base_offset}, where the sink was to write",
            topic_partition=segment.directory,
            path=self.directory.path(segment.file(names.LOG_SUFFIX)),
            hint=hint,
        )
