"""Reconstruction of `__remote_log_metadata` from the segments in remote storage.

The result is a log directory that contains only this topic. A broker that starts with it, and with the same remote
storage, knows its remote segments again. A broker without any other log directory creates their topics, too, and
continues each partition after its last remote segment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kafkalog_spark.errors import KafkalogError, NotALogDirectory
from kafkalog_spark.format import partition_metadata
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, write_leader_epochs
from kafkalog_spark.format.fsync import fsync_tree, make_directories
from kafkalog_spark.format.names import REMOTE_LOG_METADATA_TOPIC
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.remote.remote_dir_listing import RemoteDirListing
from kafkalog_spark.log.remote.remote_indexes import check_indexes_size
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.remote.tiered_log import TieredLocation
from kafkalog_spark.log.tiered.metadata_partitioner import metadata_partition
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.log.tiered.remote_log_events import RemoteSegmentState, SegmentEvent, SegmentUpdate, encode_event
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition
from kafkalog_spark.log.write.encoded_batch import build_batch
from kafkalog_spark.log.write.segment_writer import SegmentWriter

METADATA_PARTITIONS = 50  # Kafka's default of rlmm.config.remote.log.metadata.topic.num.partitions
_LEADER_EPOCH = 0
_BATCH_EVENTS = 100  # events in a record batch: about 20 kB


@dataclass
class TierReport:
    """Report of a reconstruction.

    Attributes:
        segments: The segments of each partition, in the order of their start offsets.
        unreadable: (path, reason) of each segment that cannot be read.
        directories: Number of remote directories of partitions that were listed.
    """

    segments: dict[TopicIdPartition, list[RemoteSegment]] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    directories: int = 0

    @property
    def is_whole(self) -> bool:
        return bool(self.segments) and not self.unreadable

    def lines(self) -> list[str]:
        """Return the report as text."""
        lines = [
            f"{partition}: {len(segments)} segments, offsets {segments[0].start_offset} to "
            f"{max(segment.end_offset for segment in segments)}, {sum(segment.size for segment in segments)} bytes"
            for partition, segments in self.segments.items()
        ]
        if not lines:
            lines = [f"no complete segment is in the {self.directories} directories of partitions there"]
        return lines + [f"left out: {path}: {reason}" for path, reason in self.unreadable]

    def as_json(self) -> dict[str, Any]:
        """Return the values that `kafkalog-repair --from-tier --json` prints."""
        return {
            "partitions": [
                {
                    "topic": partition.topic,
                    "topic_id": partition_metadata.uuid_to_text(partition.topic_id),
                    "partition": partition.partition,
                    "segments": [
                        {"start_offset": segment.start_offset, "end_offset": segment.end_offset, "bytes": segment.size}
                        for segment in segments
                    ],
                }
                for partition, segments in self.segments.items()
            ],
            "left_out": [{"path": path, "why": reason} for path, reason in self.unreadable],
        }


def metadata_from_tier(
    dirs: LogDirs,
    target: str | os.PathLike[str],
    *,
    partitions: int = METADATA_PARTITIONS,
    on_partition: Callable[[str, int], None] = lambda *_: None,
) -> TierReport:
    """Write `__remote_log_metadata` into a new or empty directory, from the remote segments of opened directories.

    A segment counts if all of its objects exist. A segment that cannot be read is reported, and has no event.

    Args:
        dirs: The directories of tiered storage.
        target: The new log directory.
        partitions: Number of partitions of the topic.
        on_partition: Called with the name of each partition before its directory is listed, and the number of all
            directories.

    Raises:
        NotALogDirectory: If `dirs` has no tiered storage, or the target is not empty.
        OSError: If a directory cannot be listed or the target cannot be written.
    """
    remote_dirs = [
        (remote_dir, location.options)
        for location in dirs.locations.values()
        if isinstance(location, TieredLocation)
        for remote_dir in location.remote
    ]
    if not remote_dirs:
        raise NotALogDirectory(
            "holds no segments of tiered storage",
            path=", ".join(dirs.paths),
            hint="give the folder or bucket that segments are copied to; layout and tiered.key.prefix say how it is "
            "laid out",
        )
    root = Path(target)
    make_directories(root)
    if any(root.iterdir()):
        raise NotALogDirectory("is not empty", path=str(root), hint="--to takes a new or empty directory")
    report = TierReport(directories=len(remote_dirs))
    for remote_dir, options in sorted(remote_dirs, key=lambda dir_and_options: dir_and_options[0].partition):
        partition = remote_dir.partition
        on_partition(f"{partition.topic}-{partition.partition}", len(remote_dirs))
        segments = _readable_segments(RemoteDirListing(remote_dir, options), report)
        if segments:
            report.segments[partition] = segments
    write_metadata_topic(root, partitions, report.segments)
    return report


def write_metadata_topic(
    root: Path, partitions: int, segments_by_partition: dict[TopicIdPartition, list[RemoteSegment]]
) -> None:
    """Write the topic `__remote_log_metadata` with the events of copied segments into a log directory, and flush it.

    Args:
        root: The log directory.
        partitions: Number of partitions of the topic.
        segments_by_partition: The segments of each partition of other topics.
    """
    topic_id = partition_metadata.new_uuid()
    events: list[list[bytes]] = [[] for _ in range(partitions)]
    latest_timestamp = 0
    for partition, segments in segments_by_partition.items():
        latest_timestamp = max(latest_timestamp, *(segment.event_timestamp for segment in segments))
        for segment in segments:
            events[metadata_partition(partition, partitions)] += _copy_events(segment)
    for number, values in enumerate(events):
        directory = root / f"{REMOTE_LOG_METADATA_TOPIC}-{number}"
        directory.mkdir(parents=True)
        partition_metadata.write_partition_metadata(directory / PARTITION_METADATA_FILE, topic_id)
        write_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT, [EpochEntry(_LEADER_EPOCH, 0)] if values else [])
        with SegmentWriter.create(directory, 0) as writer:
            for first in range(0, len(values), _BATCH_EVENTS):
                records = [(None, value) for value in values[first : first + _BATCH_EVENTS]]
                writer.append(build_batch(records, latest_timestamp, base_offset=first, leader_epoch=_LEADER_EPOCH))
    fsync_tree(root)


def _readable_segments(listing: RemoteDirListing, report: TierReport) -> list[RemoteSegment]:
    """Return the complete segments of a remote directory, and add those that cannot be read to the report."""
    segments = []
    for objects in listing.list_segments():
        try:
            (stored,) = listing.fetch_metadata([objects])
        except (KafkalogError, OSError) as error:
            path = f"{listing.remote_dir.directory}/{objects.objects[RemoteFile.LOG]}"
            report.unreadable.append((path, str(error)))
            continue
        if stored is not None:
            segments.append(replace(stored.segment, transaction_index_empty=_is_known_without_aborts(stored)))
    return segments


def _is_known_without_aborts(stored: StoredSegment) -> bool:
    """Return True if the manifest has no transaction index, and the size of the `.indexes` object agrees with it.

    A missing `.txnindex` proves nothing: it may be lost. The broker then looks for abort markers in the segment.
    """
    if stored.manifest is None or stored.manifest.indexes is None or stored.has(RemoteFile.TRANSACTION_INDEX):
        return False
    try:
        check_indexes_size(stored)
    except (KafkalogError, OSError):
        return False
    return True


def _copy_events(segment: RemoteSegment) -> Sequence[bytes]:
    """Return the two events that the broker wrote when it copied a segment, encoded."""
    started = SegmentEvent(segment, RemoteSegmentState.COPY_SEGMENT_STARTED)
    finished = SegmentUpdate(
        segment.partition,
        segment.segment_id,
        segment.broker_id,
        segment.event_timestamp,
        segment.custom_metadata,
        RemoteSegmentState.COPY_SEGMENT_FINISHED,
    )
    return encode_event(started), encode_event(finished)
