"""Copying of a log's closed segments to remote storage (RemoteLogManager.RLMCopyTask): which, and one of them."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataManager
from kafkalog_broker.remote.remote_quota import RemoteQuota
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_state import ProducerState, newest_snapshot, replay_segments
from kafkalog_spark.errors import RemoteStorageError
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import EpochEntry, format_leader_epochs
from kafkalog_spark.format.partition_metadata import new_uuid
from kafkalog_spark.format.producer_snapshot import write_producer_snapshot
from kafkalog_spark.log.remote.remote_storage import LogSegmentData, RemoteStorage
from kafkalog_spark.log.tiered.remote_names import RemoteSegment, TopicIdPartition

_NAP_S = 0.05  # how long a copy that the quota holds up waits before it looks again, and whether it is to end


def segments_to_copy(log: Log) -> Iterator[tuple[LogSegment, int]]:
    """Closed segments, and the base offset of the next one, all of whose records are stable, from the first offset on
    that is not remote; none of a log that is not copied (candidateLogSegments)."""
    if not log.config.copies_segments:
        return
    first = max(log.highest_offset_in_remote_storage + 1, log.log_start_offset)
    stable, segments = log.last_stable_offset, log.segments
    begin = max(bisect_right(segments, first, key=lambda segment: segment.base_offset) - 1, 0)
    for segment, following in pairwise(segments[begin:]):
        if following.base_offset > stable:
            return
        yield segment, following.base_offset


class CopyOfSegment(NamedTuple):
    segment: RemoteSegment
    data: LogSegmentData


class SegmentCopy:
    """is_stopped: the broker stops, and what is being copied ends before its next piece."""

    def __init__(self, storage: RemoteStorage, metadata: RemoteLogMetadataManager, quota: RemoteQuota) -> None:
        self._storage, self._metadata, self._quota = storage, metadata, quota
        self.is_stopped = False

    def prepare(self, log: Log, segment: LogSegment, until: int, now_ms: int) -> CopyOfSegment:
        """Metadata and files of a segment that is on disk; `until`: the next one's base offset. Blocks where the
        producer snapshot has to be made. Raises BrokerError, CorruptLog, OSError."""
        epochs = log.epochs.entries
        begins = max((entry for entry in epochs if entry.start_offset <= segment.base_offset), default=None)
        within = [entry for entry in epochs if segment.base_offset < entry.start_offset < until]
        if begins is not None:
            within = [EpochEntry(begins.epoch, segment.base_offset), *within]
        is_known = bool(within) and within[0].start_offset <= max(segment.base_offset, log.log_start_offset)
        if not is_known or segment.writer is not None:  # what is older than leader epochs has none
            why = "it is still being written" if is_known else "nothing is known of its leader epochs"
            what = f"the segment {segment.base_offset} cannot be copied: {why}"
            raise log.error(ErrorCode.kafka_storage_error, what, segment.base_offset)
        aborted = bool(segment.aborted())
        metadata = RemoteSegment(
            TopicIdPartition(log.topic, log.topic_id, log.partition), new_uuid(), segment.base_offset, until - 1,
            tuple(within), segment.size, segment.largest_timestamp, self._metadata.broker_id,
            now_ms, None, transaction_index_empty=not aborted,
        )  # fmt: skip
        snapshot = log.local.producer_snapshot(until) or _make_snapshot(log, until)
        data = LogSegmentData(
            log=Path(segment.log_path),
            offset_index=Path(segment.index_path),
            time_index=Path(segment.path(names.TIME_INDEX_SUFFIX)),
            transaction_index=Path(segment.path(names.TRANSACTION_INDEX_SUFFIX)) if aborted else None,
            producer_snapshot=snapshot,
            leader_epochs=format_leader_epochs(entry for entry in epochs if entry.start_offset < until),
        )
        return CopyOfSegment(metadata, data)

    def write(self, copy: CopyOfSegment, config: BrokerConfig) -> bytes | None:
        """Copy it; its custom metadata. Blocks. Raises RemoteStorageError and what RemoteStorage.copy raises."""
        custom = self._storage.copy(copy.segment, copy.data, self._throttle)
        most = config.remote_log_metadata_custom_metadata_max_bytes
        if custom is not None and len(custom) > most:
            raise RemoteStorageError(
                f"the custom metadata of {copy.segment} has {len(custom)} bytes, "
                f"remote.log.metadata.custom.metadata.max.bytes is {most}"
            )
        return custom

    def _throttle(self, size: int) -> None:
        while not self.is_stopped and (wait_ms := self._quota.wait_ms()):
            time.sleep(min(wait_ms / 1000, _NAP_S))
        if self.is_stopped:
            raise RemoteStorageError("the broker stops")
        self._quota.record(size)


def _make_snapshot(log: Log, offset: int) -> Path:
    """The producer snapshot of an offset, made of an earlier one and what lies between: a log that was recovered has
    those of its last segments only. Raises CorruptLog, OSError."""
    segments = log.segments
    bases = [segment.base_offset for segment in segments if segment.base_offset < offset]
    known = [known for known in log.local.snapshot_offsets() if bases[0] <= known <= offset]
    state = newest_snapshot(log.directory, known)[0] or ProducerState(bases[0])
    replay_segments(state, log.directory, [(base, None) for base in bases], state.end_offset)
    path = log.directory / (names.segment_name(offset) + names.PRODUCER_SNAPSHOT_SUFFIX)
    write_producer_snapshot(path, state.entries())
    return path
