"""What remote segments there are, kept in `__remote_log_metadata` (Kafka's TopicBasedRemoteLogMetadataManager).

An event is on disk before it counts: objects are written only after it is known that they may be there, and a local
segment goes only after it is known where its records are.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from kafkalog_broker.config.properties import MetadataTopic
from kafkalog_broker.coordinator.coordinator_log import record_values
from kafkalog_broker.remote.remote_log_metadata_cache import RemoteLogMetadataCache
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic_registry import Topic
from kafkalog_spark.errors import CorruptRemoteMetadata, UnsupportedFormat
from kafkalog_spark.log.tiered.remote_log_metadata import (
    REMOTE_LOG_METADATA_TOPIC,
    PartitionDeleteState,
    PartitionDeletion,
    RemoteLogEvent,
    RemoteSegmentState,
    SegmentEvent,
    SegmentUpdate,
    decode_event,
    encode_event,
    metadata_partition,
)
from kafkalog_spark.log.tiered.remote_names import RemoteSegment, TopicIdPartition
from kafkalog_spark.log.write.encoded_batch import build_batch

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 20  # bytes of the topic that are read at a time, some 4,000 events


def metadata_topic_configs(topic: MetadataTopic) -> Mapping[str, str]:
    return {
        "cleanup.policy": "delete",
        "min.insync.replicas": str(topic.min_isr),
        "remote.storage.enable": "false",
        "retention.ms": str(topic.retention_ms),
    }


class RemoteLogMetadataManager:
    """log_of: the log of a partition of `__remote_log_metadata`. run_blocking: runs a flush. partitions: of users, that
    have or had remote segments and are not deleted, by their ids. Used in the event loop's thread, but for `load`."""

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        log_of: Callable[[str, int], Log],
        run_blocking: Callable[..., Awaitable[Any]],
    ) -> None:
        self.broker_id = broker_id
        self._clock = clock
        self._log_of = log_of
        self._run_blocking = run_blocking
        self._count = 0
        self.partitions: dict[tuple[UUID, int], RemoteLogMetadataCache] = {}
        self.odd = 0  # records that are no events

    def load(self, topic: Topic) -> None:
        """Read the whole topic. Blocks; before anything else. Raises BrokerError, CorruptLog."""
        self._count = topic.partitions
        for number in range(topic.partitions):
            for value in self._values(number):
                try:
                    self._take(decode_event(value))
                except (CorruptRemoteMetadata, UnsupportedFormat, ValueError) as error:
                    self.odd += 1
                    _log.error("a record of %s-%d is passed over: %s", REMOTE_LOG_METADATA_TOPIC, number, error)

    def _values(self, number: int) -> Iterator[bytes]:
        log = self._log_of(REMOTE_LOG_METADATA_TOPIC, number)
        offset, end = log.log_start_offset, log.high_watermark
        while offset < end:
            read = log.read_range(offset, _READ_BYTES, up_to=end, at_least_one=True)
            if not read.chunks:
                return
            yield from record_values(read.chunks)
            offset = read.next_offset

    def _take(self, event: RemoteLogEvent) -> None:
        partition = event.segment.partition if isinstance(event, SegmentEvent) else event.partition
        self.of(partition).take(event)
        if isinstance(event, PartitionDeletion) and event.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
            del self.partitions[partition.topic_id, partition.partition]

    def of(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        key = (partition.topic_id, partition.partition)
        known = self.partitions.get(key)
        if known is None:
            known = self.partitions[key] = RemoteLogMetadataCache(partition)
        return known

    # ---- events of this broker

    async def add(self, segment: RemoteSegment) -> None:
        """COPY_SEGMENT_STARTED: the segment's objects may be there from now on. Raises BrokerError."""
        await self._append(segment.partition, [SegmentEvent(segment, RemoteSegmentState.COPY_SEGMENT_STARTED)])

    async def update(
        self, segments: Iterable[RemoteSegment], state: RemoteSegmentState, custom_metadata: bytes | None = None
    ) -> None:
        """The next state of segments of one partition. custom_metadata: None where it stays. Raises BrokerError."""
        events: list[RemoteLogEvent] = [
            SegmentUpdate(
                segment.partition, segment.segment_id, self.broker_id, self._clock.now_ms(),
                segment.custom_metadata if custom_metadata is None else custom_metadata, state,
            )
            for segment in segments
        ]  # fmt: skip
        if events:
            await self._append(events[0].partition, events)  # type: ignore[union-attr]

    async def mark_deleted(self, partitions: Iterable[TopicIdPartition], state: PartitionDeleteState) -> None:
        """Those that have, or had, remote segments are to lose them, or have. Raises BrokerError."""
        for partition in partitions:
            if (partition.topic_id, partition.partition) in self.partitions:
                event = PartitionDeletion(partition, self.broker_id, self._clock.now_ms(), state)
                await self._append(partition, [event])

    async def _append(self, partition: TopicIdPartition, events: list[RemoteLogEvent]) -> None:
        log = self._log_of(REMOTE_LOG_METADATA_TOPIC, metadata_partition(partition, self._count))
        now_ms = self._clock.now_ms()
        batch = build_batch([(None, encode_event(event)) for event in events], now_ms)
        end = log.append_batch(batch.data, now_ms).last_offset + 1
        await self._run_blocking(log.flush, end)
        for event in events:
            self._take(event)
