"""What remote segments there are, kept in `__remote_log_metadata` (Kafka's TopicBasedRemoteLogMetadataManager).

An event is on disk before it counts: objects are written only after it is known that they may be there, and a local
segment goes only after it is known where its records are. All is changed in the event loop's thread only; lists are
replaced as a whole, so that other threads may look things up.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any
from uuid import UUID

from kafkalog_broker.config.properties import MetadataTopic
from kafkalog_broker.coordinator.record_batch import record_values
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic_registry import Topic
from kafkalog_spark.errors import CorruptRemoteMetadata, KafkalogError, UnsupportedFormat, printable
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.names import REMOTE_LOG_METADATA_TOPIC
from kafkalog_spark.log.tiered.remote_log_metadata import (
    PartitionDeleteState,
    PartitionDeletion,
    RemoteLogEvent,
    RemoteSegmentState,
    SegmentEvent,
    SegmentUpdate,
    decode_event,
    encode_event,
    following,
    metadata_partition,
)
from kafkalog_spark.log.tiered.remote_names import RemoteSegment, TopicIdPartition
from kafkalog_spark.log.write.encoded_batch import build_batch

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 20  # bytes of the topic that are read at a time, some 4,000 events

COPY_STARTED = RemoteSegmentState.COPY_SEGMENT_STARTED
COPY_FINISHED = RemoteSegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = RemoteSegmentState.DELETE_SEGMENT_STARTED
DELETE_FINISHED = RemoteSegmentState.DELETE_SEGMENT_FINISHED


@dataclass(slots=True, eq=False)
class EpochSegments:
    """Finished segments with records of one leader epoch (RemoteLogLeaderEpochState). spans: (offset at which the epoch
    begins in it, segment), by offset, without those that a later one covers, which are in `covered`. highest: the last
    offset of the epoch that was copied."""

    spans: list[tuple[int, RemoteSegment]] = field(default_factory=list)
    covered: list[RemoteSegment] = field(default_factory=list)
    highest: int = -1

    def add(self, segment: RemoteSegment, start: int, end: int) -> None:
        """The epoch has the offsets [start, end] of the segment."""
        spans = self.spans[:]
        while spans and spans[-1][0] >= start and self.highest <= end:
            self.covered = [*self.covered, spans.pop()[1]]
        slot = bisect_right(spans, start, key=itemgetter(0))
        if slot and spans[slot - 1][0] == start:
            slot -= 1
            self.covered = [*self.covered, spans.pop(slot)[1]]
        spans.insert(slot, (start, segment))
        self.highest = max(self.highest, end)
        self.spans = spans

    def remove(self, segment_id: UUID) -> None:
        slot = next((slot for slot, (_, other) in enumerate(self.spans) if other.segment_id == segment_id), None)
        if slot is None:
            self.covered = [other for other in self.covered if other.segment_id != segment_id]
            return
        self.spans = self.spans[:slot] + self.spans[slot + 1 :]

    def all(self) -> list[RemoteSegment]:
        """By start offset, covered ones too."""
        segments = [*(segment for _, segment in self.spans), *self.covered]
        return sorted(segments, key=lambda segment: segment.start_offset) if self.covered else segments


class RemoteLogMetadataCache:
    """Remote segments of one partition (Kafka's class of that name); all have the one object `partition`. is_deleted:
    its remote log is to be deleted, or is. odd: events that did not follow from those before; they change nothing."""

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.is_deleted = False
        self.odd = 0
        self.finished_bytes = 0
        self._segments: dict[UUID, SegmentEvent] = {}
        self._epochs: dict[int, EpochSegments] = {}

    def __len__(self) -> int:
        return len(self._segments)

    # ---- events

    def take(self, event: RemoteLogEvent) -> None:
        if isinstance(event, PartitionDeletion):
            self.is_deleted = True
            if event.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
                self._segments, self._epochs, self.finished_bytes = {}, {}, 0
            return
        if isinstance(event, SegmentEvent):
            event = SegmentEvent(replace(event.segment, partition=self.partition), event.state)
        segment_id = event.segment.segment_id if isinstance(event, SegmentEvent) else event.segment_id
        before = self._segments.get(segment_id)
        after, is_odd = following(before, event)
        self.odd += is_odd
        if after is before:
            return
        if before is not None and before.state is COPY_FINISHED:
            self._unfinished(before.segment)
        if after is None:
            del self._segments[segment_id]
            return
        self._segments[segment_id] = after
        if after.state is COPY_FINISHED:  # at once in RemoteLogMetadataSnapshot, and in what --from-tier writes
            self._finished(after.segment)

    def _unfinished(self, segment: RemoteSegment) -> None:
        for epoch, _ in segment.leader_epochs:
            of_epoch = self._epochs[epoch]
            of_epoch.remove(segment.segment_id)
            if not (of_epoch.spans or of_epoch.covered):
                # a highest offset of which nothing is left would keep it from being copied
                del self._epochs[epoch]
        self.finished_bytes -= segment.size

    def _finished(self, segment: RemoteSegment) -> None:
        self.finished_bytes += segment.size
        epochs = segment.leader_epochs
        ends = [following.start_offset - 1 for _, following in pairwise(epochs)]
        for (epoch, start), end in zip(epochs, [*ends, segment.end_offset], strict=True):
            self._epochs.setdefault(epoch, EpochSegments()).add(segment, start, end)

    # ---- questions

    def event(self, segment_id: UUID) -> SegmentEvent | None:
        return self._segments.get(segment_id)

    def in_state(self, *states: RemoteSegmentState) -> list[RemoteSegment]:
        """Segments in one of these states, in no order."""
        return [segment for segment, state in self._segments.values() if state in states]

    @property
    def epochs(self) -> list[int]:
        """Those of finished segments, rising."""
        return sorted(self._epochs)

    def of_epoch(self, epoch: int) -> Sequence[RemoteSegment]:
        """Finished segments with records of the epoch, by start offset; overlapping ones too."""
        segments = self._epochs.get(epoch)
        return () if segments is None else segments.all()

    def find(self, epoch: int, offset: int) -> RemoteSegment | None:
        """The segment that holds the offset, which was written in that epoch (remoteLogSegmentMetadata)."""
        of_epoch = self._epochs.get(epoch)
        if of_epoch is None:
            return None
        spans = of_epoch.spans
        slot = bisect_right(spans, offset, key=itemgetter(0)) - 1
        if slot < 0:
            return None
        segment = spans[slot][1]
        following = next((entry.start_offset for entry in segment.leader_epochs if entry.epoch > epoch), None)
        end = segment.end_offset if following is None else following - 1
        return segment if segment.start_offset <= offset <= end else None

    def walk(self, lineage: Sequence[EpochEntry], offset: int) -> Iterator[RemoteSegment]:
        """Segments of the log, by its leader epochs, from the one that holds `offset` on, until one is missing."""
        while True:
            slot = bisect_right(lineage, offset, key=lambda entry: entry.start_offset) - 1
            segment = self.find(lineage[slot].epoch, offset) if slot >= 0 else None
            if segment is None:
                return
            yield segment
            offset = segment.until

    def first_offset(self, lineage: Sequence[EpochEntry]) -> int | None:
        """Where the log begins remotely (findLogStartOffset); None when it has no remote segment."""
        for entry in lineage:
            segments = self.of_epoch(entry.epoch)
            if segments:
                return segments[0].start_offset
        return None

    def highest_offset(self, lineage: Sequence[EpochEntry], log_end_offset: int) -> int:
        """The last offset of the log that was copied (findHighestRemoteOffset); -1 for none, and without a lineage."""
        end = log_end_offset
        for entry in reversed(lineage):
            of_epoch = self._epochs.get(entry.epoch)
            if of_epoch is not None:
                return min(of_epoch.highest, end - 1)
            end = entry.start_offset
        return -1


def _partition_of(event: RemoteLogEvent) -> TopicIdPartition:
    return event.segment.partition if isinstance(event, SegmentEvent) else event.partition


def _check_name(event: RemoteLogEvent, name_of: Callable[[UUID], str | None]) -> None:
    partition = _partition_of(event)
    name = name_of(partition.topic_id)
    if name not in (None, partition.topic):
        raise CorruptRemoteMetadata(f"it is about {partition}, and the topic with this ID is {name}")


def metadata_topic_configs(topic: MetadataTopic) -> Mapping[str, str]:
    return {
        "cleanup.policy": "delete",
        "min.insync.replicas": str(topic.min_isr),
        "remote.storage.enable": "false",
        "retention.ms": str(topic.retention_ms),
    }


@dataclass(eq=False)
class RemoteLogMetadataManager:
    """log_of: the log of a partition of `__remote_log_metadata`. run_blocking: runs a flush. partitions: of users, that
    have or had remote segments and are not deleted, by their ids. unreadable: partitions of the topic that
    cannot be read, and why. Used in the event loop's thread, but for `load`."""

    broker_id: int
    _clock: Clock
    _log_of: Callable[[str, int], Log]
    _run_blocking: Callable[..., Awaitable[Any]]
    _count: int = 0
    partitions: dict[tuple[UUID, int], RemoteLogMetadataCache] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)

    def load(self, topic: Topic, name_of: Callable[[UUID], str | None] = lambda topic_id: None) -> None:
        """Read the whole topic. Blocks; before anything else.

        A partition that cannot be read is `unreadable`: what its events say of users' partitions is not known. A record
        that is no event changes nothing.

        Args:
            name_of: The name of the topic with an ID, None if there is no such topic. An event that gives the ID
                another name would let the segments of later events be looked for in the wrong place.
        """
        self._count = topic.partitions
        for number in range(topic.partitions):
            name, odd = f"{REMOTE_LOG_METADATA_TOPIC}-{number}", 0
            first: KafkalogError | None = None
            try:
                for value in record_values(self._log_of(REMOTE_LOG_METADATA_TOPIC, number).chunks(_READ_BYTES)):
                    try:
                        event = decode_event(value)
                        _check_name(event, name_of)
                        self._take(event)
                    except (CorruptRemoteMetadata, UnsupportedFormat) as error:
                        first, odd = first or error, odd + 1
            except (KafkalogError, OSError) as error:
                self.unreadable[number] = printable(str(error))
                _log.error("%s cannot be read, and nothing is known of its remote segments: %s", name, error)
            if odd:
                _log.warning("%s: %d records are skipped, because they are no events; the first: %s", name, odd, first)

    def why_unknown(self, partition: TopicIdPartition) -> str | None:
        """Why it is not known which remote segments a partition has; None if it is known."""
        number = metadata_partition(partition, self._count)
        why = self.unreadable.get(number)
        return None if why is None else f"{REMOTE_LOG_METADATA_TOPIC}-{number} cannot be read: {why}"

    def _take(self, event: RemoteLogEvent) -> None:
        partition = _partition_of(event)
        self.of(partition).take(event)
        if isinstance(event, PartitionDeletion) and event.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
            del self.partitions[partition.topic_id, partition.partition]

    def of(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        key = (partition.topic_id, partition.partition)
        return self.partitions.setdefault(key, RemoteLogMetadataCache(partition))

    # ---- events of this broker

    async def add(self, segment: RemoteSegment) -> None:
        """COPY_SEGMENT_STARTED: the segment's objects may be there from now on. Raises BrokerError."""
        await self._append(segment.partition, [SegmentEvent(segment, COPY_STARTED)])

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
