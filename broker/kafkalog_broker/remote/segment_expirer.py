"""Deletion of remote segments: expired, unfinished, and of deleted topics (Kafka's `RLMExpirationTask`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from kafkalog_broker.remote.partition_tasks import PartitionTasks
from kafkalog_broker.remote.remote_log_metadata_cache import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
)
from kafkalog_broker.remote.remote_partition import Lag, RemotePartition
from kafkalog_broker.remote.remote_retention import expired_segments
from kafkalog_broker.remote.remote_services import RemoteServices
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.tiered.remote_log_events import PartitionDeleteState
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment

_log = logging.getLogger(__name__)

_SEGMENTS_PER_EVENT = 100
"""Number of segments whose deletion is recorded with one flush, so that many segments take few flushes."""


class SegmentExpirer:
    """Deletes segments of partitions in the background. Used from the event loop; objects are deleted in threads.

    Attributes:
        tasks: Waiting and running deletions.
    """

    def __init__(self, services: RemoteServices, forget: Callable[[RemotePartition], None]) -> None:
        """Create the expirer.

        Args:
            forget: Called when the last segment of a deleted topic's partition is gone.
        """
        self._storage = services.storage
        self._metadata = services.metadata
        self._clock = services.clock
        self._counts = services.counts
        self._forget = forget
        config = services.config
        self.tasks = PartitionTasks(
            self._expire, lambda: config().remote_log_manager_expiration_thread_pool_size, "kafkalog-remote-delete"
        )
        self._is_stopping = False

    def add(self, partition: RemotePartition) -> None:
        """Queue a partition whose segments are to be deleted."""
        self.tasks.add(partition)

    def begin_stop(self) -> None:
        """Ignore failures from now on, because they are caused by the stop."""
        self._is_stopping = True

    async def _expire(self, partition: RemotePartition) -> None:
        remote, log = partition.remote, partition.log
        if self._metadata.unreadable_reason(remote.partition) is not None:
            return  # the event that finished a seemingly unfinished copy may be in the unreadable partition
        try:
            await self._delete(partition, self._unfinished(partition))
            if remote.is_deleted:
                await self._delete_topic_partition(partition)
            elif log is None or log.is_closed or log.failure is not None:
                return
            elif log.config.remote_storage_enable:
                await self._apply_retention(partition, log)
            elif log.config.remote_log_delete_on_disable:
                await self._delete_disabled(partition, log)
        except (KafkalogError, OSError) as error:
            if self._is_stopping:
                return
            self._counts.delete_errors += 1
            _log.warning("deleting remote segments of %s failed and will be retried: %s", remote.partition, error)

    def _unfinished(self, partition: RemotePartition) -> list[RemoteSegment]:
        """Return segments whose copy or deletion was not finished, except running copies."""
        return [
            segment
            for segment in partition.remote.in_state(COPY_STARTED, DELETE_STARTED)
            if segment.segment_id not in partition.copying
        ]

    async def _delete_topic_partition(self, partition: RemotePartition) -> None:
        remote = partition.remote
        await self._delete(partition, remote.in_state(COPY_FINISHED))
        if not len(remote):
            await self._metadata.mark_deleted([remote.partition], PartitionDeleteState.DELETE_PARTITION_FINISHED)
            self._forget(partition)

    async def _delete_disabled(self, partition: RemotePartition, log: Log) -> None:
        """Delete all segments of a topic whose remote storage was disabled with remote.log.delete.on.disable."""
        log.move_log_start(log.local_log_start_offset)
        log.highest_offset_in_remote_storage = -1
        # Record all deletions before the first object is deleted. If remote storage is enabled again after a crash, the
        # topic must not begin with the remaining segments.
        finished = partition.remote.in_state(COPY_FINISHED)
        for at in range(0, len(finished), _SEGMENTS_PER_EVENT):
            await self._metadata.update(finished[at : at + _SEGMENTS_PER_EVENT], DELETE_STARTED)
        await self._delete(partition, finished)

    async def _apply_retention(self, partition: RemotePartition, log: Log) -> None:
        first_local_only = log.highest_offset_in_remote_storage + 1
        decide = partial(
            expired_segments, partition.remote, log.config, log.epochs.entries, self._clock.now_ms(),
            log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset,
            only_local_bytes=sum(
                segment.size for segment in log.segments if segment.base_offset >= first_local_only
            ),
        )  # fmt: skip
        expired = await asyncio.get_running_loop().run_in_executor(self.tasks.threads, decide)
        if expired.log_start_offset is not None:
            log.check_online()
            log.move_log_start(min(expired.log_start_offset, log.high_watermark))
        await self._delete(partition, expired.segments)
        _report_future_segment(partition, expired.from_future)

    async def _delete(self, partition: RemotePartition, segments: list[RemoteSegment]) -> None:
        """Delete segments.

        DELETE_SEGMENT_STARTED is recorded before the first object is deleted, and DELETE_SEGMENT_FINISHED after the
        last one.
        """
        loop = asyncio.get_running_loop()
        lag = partition.delete_lag = Lag(len(segments), sum(segment.size for segment in segments))
        for at in range(0, len(segments), _SEGMENTS_PER_EVENT):
            group = segments[at : at + _SEGMENTS_PER_EVENT]
            events = (partition.remote.event(segment.segment_id) for segment in group)
            to_record = [event.segment for event in events if event is not None and event.state is not DELETE_STARTED]
            await self._metadata.update(to_record, DELETE_STARTED)
            deleted: list[RemoteSegment] = []
            try:
                for segment in group:
                    self._counts.delete_requests += 1
                    await loop.run_in_executor(self.tasks.threads, self._storage.delete, segment)
                    deleted.append(segment)
                    lag = partition.delete_lag = Lag(lag.segments - 1, lag.size - segment.size)
            finally:
                await self._metadata.update(deleted, DELETE_FINISHED)


def _report_future_segment(partition: RemotePartition, segment: RemoteSegment | None) -> None:
    """Log, once per segment, that retention.ms keeps it because of a timestamp in the future."""
    if segment is not None and partition.reported_future_segment != segment.segment_id:
        _log.warning(
            "the remote segment %s of %s has a record whose timestamp %d is in the future: retention.ms keeps it and "
            "all later segments until then. Remove them with DeleteRecords or retention.bytes; "
            "message.timestamp.after.max.ms refuses such records.",
            segment.name, partition.remote.partition, segment.max_timestamp,
        )  # fmt: skip
    partition.reported_future_segment = None if segment is None else segment.segment_id
