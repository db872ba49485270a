"""`__remote_log_metadata` made again from the segments that lie in remote storage.

What is made is a log directory with that topic alone. A broker that starts with it, and with the same remote storage,
knows its remote segments again; one without any other log directory takes the topics in and goes on after them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kafkalog_spark.errors import KafkalogError, NotALogDirectory
from kafkalog_spark.format import partition_metadata
from kafkalog_spark.format.atomic_file import fsync_tree, make_directories
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, write_leader_epochs
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


@dataclass
class TierReport:
    """Result of the walk. segments: of each partition, by start offset. unreadable: paths and why. directories: number
    of partitions' directories that were listed."""

    segments: dict[TopicIdPartition, list[RemoteSegment]] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    directories: int = 0

    @property
    def is_whole(self) -> bool:
        return bool(self.segments) and not self.unreadable

    def lines(self) -> list[str]:
        found = [
            f"{partition}: {len(segments)} segments, offsets {segments[0].start_offset} to "
            f"{max(segment.end_offset for segment in segments)}, {sum(segment.size for segment in segments)} bytes"
            for partition, segments in self.segments.items()
        ]
        nothing = [] if found else [f"no complete segment is in the {self.directories} directories of partitions there"]
        return [*found, *nothing, *(f"left out: {path}: {why}" for path, why in self.unreadable)]

    def as_json(self) -> dict[str, Any]:
        return {
            "partitions": [
                {
                    "topic": partition.topic,
                    "topic_id": partition_metadata.uuid_to_text(partition.topic_id),
                    "partition": partition.partition,
                    "segments": [
                        {"start_offset": one.start_offset, "end_offset": one.end_offset, "bytes": one.size}
                        for one in segments
                    ],
                }
                for partition, segments in self.segments.items()
            ],
            "left_out": [{"path": path, "why": why} for path, why in self.unreadable],
        }


def metadata_from_tier(
    dirs: LogDirs,
    target: str | os.PathLike[str],
    *,
    partitions: int = METADATA_PARTITIONS,
    on_partition: Callable[[str, int], None] = lambda *_: None,
) -> TierReport:
    """Write the topic, with `partitions` partitions, into a new or empty directory, for the tiers that were opened. A
    segment counts when all of its objects are there; one that cannot be read is reported. on_partition: called with its
    name and how many there are. Raises NotALogDirectory where there is no tier or the target is not empty, OSError."""
    tiered = [place for place in dirs.locations.values() if isinstance(place, TieredLocation)]
    places = [(remote, place.options) for place in tiered for remote in place.remote]
    if not places:
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
    report = TierReport(directories=len(places))
    for remote, options in sorted(places, key=lambda one: one[0].partition):
        on_partition(f"{remote.partition.topic}-{remote.partition.partition}", len(places))
        listing = RemoteDirListing(remote, options)
        found: list[RemoteSegment] = []
        for objects in listing.look():
            path = f"{remote.directory}/{objects.objects[RemoteFile.LOG]}"
            try:
                (held,) = listing.held([objects])
            except (KafkalogError, OSError) as error:
                report.unreadable.append((path, str(error)))
                continue
            if held is not None:
                empty = _is_known_without_aborts(held)
                found.append(replace(held.segment, transaction_index_empty=empty))
        if found:
            report.segments[remote.partition] = found
    write_metadata_topic(root, partitions, report.segments)
    return report


def _is_known_without_aborts(held: StoredSegment) -> bool:
    """True if the manifest tells that there is no transaction index, and the `.indexes` object agrees.

    A missing `.txnindex` proves nothing: it may be lost. The broker then looks for abort markers in the segment.
    """
    if held.manifest is None or held.manifest.indexes is None or held.has(RemoteFile.TRANSACTION_INDEX):
        return False
    try:
        check_indexes_size(held)
    except (KafkalogError, OSError):
        return False
    return True


def write_metadata_topic(root: Path, partitions: int, found: dict[TopicIdPartition, list[RemoteSegment]]) -> None:
    """Write `__remote_log_metadata` into a log directory, as if these segments had been copied; on disk on return."""
    topic_id = partition_metadata.new_uuid()
    events: list[list[bytes]] = [[] for _ in range(partitions)]
    latest = 0
    for partition, segments in found.items():
        latest = max(latest, *(segment.event_timestamp for segment in segments))
        for one in segments:  # as the broker that copied them wrote them
            finished = SegmentUpdate(
                partition, one.segment_id, one.broker_id, one.event_timestamp, one.custom_metadata,
                RemoteSegmentState.COPY_SEGMENT_FINISHED,
            )  # fmt: skip
            started = SegmentEvent(one, RemoteSegmentState.COPY_SEGMENT_STARTED)
            events[metadata_partition(partition, partitions)] += [encode_event(started), encode_event(finished)]
    for number, values in enumerate(events):
        directory = root / f"{REMOTE_LOG_METADATA_TOPIC}-{number}"
        directory.mkdir(parents=True)
        partition_metadata.write_partition_metadata(directory / PARTITION_METADATA_FILE, topic_id)
        write_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT, [EpochEntry(_LEADER_EPOCH, 0)] if values else [])
        with SegmentWriter.create(directory, 0) as writer:
            for at in range(0, len(values), _EVENTS):
                records = [(None, value) for value in values[at : at + _EVENTS]]
                writer.append(build_batch(records, latest, base_offset=at, leader_epoch=_LEADER_EPOCH))
    fsync_tree(root)


_EVENTS = 100  # records of a batch: some 20 kB
