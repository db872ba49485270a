"""Metadata of remote segments, stored in `__remote_log_metadata` (Kafka's `TopicBasedRemoteLogMetadataManager`).

An event is flushed before it takes effect: objects are written after COPY_SEGMENT_STARTED is on disk, and a local
segment is deleted after COPY_SEGMENT_FINISHED is on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafkalog_broker.config.remote_storage_settings import MetadataTopic
from kafkalog_broker.coordinator.record_batch import record_values
from kafkalog_broker.remote.remote_log_metadata_cache import COPY_STARTED, RemoteLogMetadataCache
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic import Topic
from kafkalog_spark.errors import CorruptRemoteMetadata, KafkalogError, UnsupportedFormat, printable
from kafkalog_spark.format.names import REMOTE_LOG_METADATA_TOPIC
from kafkalog_spark.log.tiered.metadata_partitioner import metadata_partition
from kafkalog_spark.log.tiered.remote_log_events import (
    PartitionDeleteState,
    PartitionDeletion,
    RemoteLogEvent,
    RemoteSegmentState,
    SegmentEvent,
    SegmentUpdate,
    decode_event,
    encode_event,
)
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition
from kafkalog_spark.log.write.encoded_batch import build_batch

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 20  # bytes of the topic per read, about 4,000 events


def metadata_topic_configs(topic: MetadataTopic) -> Mapping[str, str]:
    """Return the overrides of `__remote_log_metadata`."""
    return {
        "cleanup.policy": "delete",
        "min.insync.replicas": str(topic.min_isr),
        "remote.storage.enable": "false",
        "retention.ms": str(topic.retention_ms),
    }


@dataclass(eq=False)
class RemoteLogMetadataManager:
    """Reads and appends the events. Used from the event loop, except `load`.

    Attributes:
        _log_of: Returns the log of a topic's partition.
        _run_blocking: Runs a flush on another thread.
        _count: Number of partitions of `__remote_log_metadata`.
        partitions: Partitions with events, by topic ID and partition number. A partition is removed when the deletion
            of its segments is finished.
        unreadable: Partitions of `__remote_log_metadata` that cannot be read, with the reason.
    """

    broker_id: int
    _clock: Clock
    _log_of: Callable[[str, int], Log]
    _run_blocking: Callable[..., Awaitable[Any]]
    _count: int = 0
    partitions: dict[tuple[UUID, int], RemoteLogMetadataCache] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)

    def load(self, topic: Topic, name_of: Callable[[UUID], str | None] = lambda topic_id: None) -> None:
        """Read the whole topic. Blocks; called before all other methods.

        A partition that cannot be read is added to `unreadable`. A record that is not a valid event is skipped.

        Args:
            name_of: Returns the name of the topic with an ID; None for an unknown ID. An event with another name is
                invalid, because the objects of later segments would be searched under a wrong name.
        """
        self._count = topic.partitions
        for number in range(topic.partitions):
            name = f"{REMOTE_LOG_METADATA_TOPIC}-{number}"
            skipped = 0
            first: KafkalogError | None = None
            try:
                for value in record_values(self._log_of(REMOTE_LOG_METADATA_TOPIC, number).chunks(_READ_BYTES)):
                    try:
                        event = decode_event(value)
                        _check_name(event, name_of)
                        self._apply(event)
                    except (CorruptRemoteMetadata, UnsupportedFormat) as error:
                        first = first or error
                        skipped = skipped + 1
            except (KafkalogError, OSError) as error:
                self.unreadable[number] = printable(str(error))
                _log.error("%s cannot be read, so the remote segments of its partitions are unknown: %s", name, error)
            if skipped:
                _log.warning("%s: skipped %d records that are not valid events; the first: %s", name, skipped, first)

    def unreadable_reason(self, partition: TopicIdPartition) -> str | None:
        """Return why the remote segments of a partition are unknown, or None if they are known."""
        number = metadata_partition(partition, self._count)
        reason = self.unreadable.get(number)
        return None if reason is None else f"{REMOTE_LOG_METADATA_TOPIC}-{number} cannot be read: {reason}"

    def _apply(self, event: RemoteLogEvent) -> None:
        partition = _partition_of(event)
        self.cache_of(partition).apply(event)
        if isinstance(event, PartitionDeletion) and event.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
            del self.partitions[partition.topic_id, partition.partition]

    def cache_of(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        """Return the remote segments of a partition; a partition without events has none."""
        key = (partition.topic_id, partition.partition)
        return self.partitions.setdefault(key, RemoteLogMetadataCache(partition))

    async def add(self, segment: RemoteSegment) -> None:
        """Record COPY_SEGMENT_STARTED, before the first object of a segment is written. Raises BrokerError."""
        await self._append(segment.partition, [SegmentEvent(segment, COPY_STARTED)])

    async def update(
        self, segments: Iterable[RemoteSegment], state: RemoteSegmentState, custom_metadata: bytes | None = None
    ) -> None:
        """Record the next state of segments of one partition.

        Args:
            custom_metadata: New custom metadata; None keeps that of each segment.

        Raises:
            BrokerError: If the events cannot be appended or flushed.
        """
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
        """Record a state of the deletion of all segments of partitions; a no-op for partitions without events.

        Raises:
            BrokerError: If the events cannot be appended or flushed.
        """
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
            self._apply(event)


def _check_name(event: RemoteLogEvent, name_of: Callable[[UUID], str | None]) -> None:
    """Raise CorruptRemoteMetadata if the event has another topic name than the topic with its ID."""
    partition = _partition_of(event)
    name = name_of(partition.topic_id)
    if name not in (None, partition.topic):
        raise CorruptRemoteMetadata(f"the event names {partition}, but the topic with this ID is {name}")


def _partition_of(event: RemoteLogEvent) -> TopicIdPartition:
    return event.segment.partition if isinstance(event, SegmentEvent) else event.partition
