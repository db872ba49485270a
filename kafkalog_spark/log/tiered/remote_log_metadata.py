"""`__remote_log_metadata`: one event a record value, and what they say together of a partition's remote segments.

Value: unsigned varints frame version (1), apiKey, version; then a flexible message. Sources: Kafka's
RemoteLogSegmentMetadataRecord.json and its neighbours, BytesApiMessageSerde, RemoteLogSegmentState.

    apiKey 0  a segment begins to be copied: all that is known of it, and its state
    apiKey 1  a segment's state changes
    apiKey 2  a partition's remote log is being deleted
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from kafkalog_spark.errors import UnsupportedFormat
from kafkalog_spark.log.format.checkpoint import EpochEntry
from kafkalog_spark.log.tiered.compact_reader import CompactReader
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition

REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"

_FRAME_VERSION = 1
_SEGMENT, _UPDATE, _PARTITION_DELETE, _SNAPSHOT = range(4)
_TXN_INDEX_EMPTY_TAG = 0  # Kafka 4.0
_EPOCH_SIZE = 13  # bytes at least: int32, int64, no tagged fields


class RemoteSegmentState(IntEnum):
    """Kafka's RemoteLogSegmentState. Only COPY_SEGMENT_FINISHED may be read."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class PartitionDeleteState(IntEnum):
    """Kafka's RemotePartitionDeleteState."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


NEXT_STATES = {
    RemoteSegmentState.COPY_SEGMENT_STARTED: {
        RemoteSegmentState.COPY_SEGMENT_FINISHED,
        RemoteSegmentState.DELETE_SEGMENT_STARTED,  # the copy failed
    },
    RemoteSegmentState.COPY_SEGMENT_FINISHED: {RemoteSegmentState.DELETE_SEGMENT_STARTED},
    RemoteSegmentState.DELETE_SEGMENT_STARTED: {RemoteSegmentState.DELETE_SEGMENT_FINISHED},
    RemoteSegmentState.DELETE_SEGMENT_FINISHED: set(),
}
"""Which state may follow which; each may be said again (RemoteLogSegmentState.isValidTransition)."""


MOST_ODDITIES = 100
"""Events that are kept in words; a topic that was damaged may hold millions."""


class SegmentEvent(NamedTuple):
    """apiKey 0."""

    segment: RemoteSegment
    state: RemoteSegmentState


class SegmentUpdate(NamedTuple):
    """apiKey 1. event_timestamp: ms."""

    partition: TopicIdPartition
    segment_id: uuid.UUID
    broker_id: int
    event_timestamp: int
    custom_metadata: bytes | None
    state: RemoteSegmentState


class PartitionDeletion(NamedTuple):
    """apiKey 2. event_timestamp: ms."""

    partition: TopicIdPartition
    broker_id: int
    event_timestamp: int
    state: PartitionDeleteState


RemoteLogEvent = SegmentEvent | SegmentUpdate | PartitionDeletion


def decode_event(value: bytes) -> RemoteLogEvent:
    """Decode a record's value.

    Fields that later versions add come as tagged fields and are passed over. Raises CorruptRemoteMetadata with the
    byte, UnsupportedFormat for another frame version or apiKey.
    """
    reader = CompactReader(value)
    frame = reader.uvarint()
    if frame != _FRAME_VERSION:
        raise UnsupportedFormat(f"frame version {frame} of remote log metadata, only {_FRAME_VERSION} is known")
    api_key, version = reader.uvarint(), reader.uvarint()
    if api_key not in _DECODERS:
        raise UnsupportedFormat(
            f"apiKey {api_key} of remote log metadata (version {version}), 0 to 2 are known"
            + (": 3 stands in snapshot files only" if api_key == _SNAPSHOT else "")
        )
    event = _DECODERS[api_key](reader)
    reader.end()
    return event


def _topic_id_partition(reader: CompactReader) -> TopicIdPartition:
    topic, topic_id, partition = reader.string(), reader.uuid(), reader.int32()
    reader.tagged_fields()
    return TopicIdPartition(topic, topic_id, partition)


def _segment_id(reader: CompactReader) -> tuple[TopicIdPartition, uuid.UUID]:
    partition, segment_id = _topic_id_partition(reader), reader.uuid()
    reader.tagged_fields()
    return partition, segment_id


def _epochs(reader: CompactReader) -> tuple[EpochEntry, ...]:
    epochs = []
    for _ in range(reader.array_length(_EPOCH_SIZE)):
        epochs.append(EpochEntry(reader.int32(), reader.int64()))
        reader.tagged_fields()
    return tuple(sorted(epochs))


def _segment_state(reader: CompactReader) -> RemoteSegmentState:
    try:
        return RemoteSegmentState(reader.int8())
    except ValueError as error:
        raise reader.wrong(f"{error}: 0 to 3 are known", reader.at - 1) from None


def _segment_event(reader: CompactReader) -> SegmentEvent:
    partition, segment_id = _segment_id(reader)
    start, end = reader.int64(), reader.int64()
    broker_id, max_timestamp, event_timestamp = reader.int32(), reader.int64(), reader.int64()
    epochs, size, custom = _epochs(reader), reader.int32(), reader.nullable_bytes()
    state = _segment_state(reader)
    tagged = reader.tagged_fields()
    return SegmentEvent(
        RemoteSegment(
            partition, segment_id, start, end, epochs, size, max_timestamp, broker_id, event_timestamp, custom,
            transaction_index_empty=any(tagged.get(_TXN_INDEX_EMPTY_TAG, b"")),
        ),
        state,
    )  # fmt: skip


def _segment_update(reader: CompactReader) -> SegmentUpdate:
    partition, segment_id = _segment_id(reader)
    broker_id, event_timestamp, custom = reader.int32(), reader.int64(), reader.nullable_bytes()
    state = _segment_state(reader)
    reader.tagged_fields()
    return SegmentUpdate(partition, segment_id, broker_id, event_timestamp, custom, state)


def _partition_deletion(reader: CompactReader) -> PartitionDeletion:
    partition, broker_id, event_timestamp = _topic_id_partition(reader), reader.int32(), reader.int64()
    try:
        state = PartitionDeleteState(reader.int8())
    except ValueError as error:
        raise reader.wrong(f"{error}: 0 to 2 are known", reader.at - 1) from None
    reader.tagged_fields()
    return PartitionDeletion(partition, broker_id, event_timestamp, state)


_DECODERS: dict[int, Callable[[CompactReader], RemoteLogEvent]] = {
    _SEGMENT: _segment_event,
    _UPDATE: _segment_update,
    _PARTITION_DELETE: _partition_deletion,
}


class RemoteLogState:
    """What the events so far say. Events of one partition must come in the order of the topic's offsets.

    segments: (partition, segment id) -> segment and its state, deleted ones left out. deleted_partitions: those whose
    remote log is going or gone. odd: how many events did not follow from those before; they change nothing, as a
    broker ignores them. oddities: the first of them in words.
    """

    def __init__(self, events: Iterable[RemoteLogEvent] = ()) -> None:
        self.segments: dict[tuple[TopicIdPartition, uuid.UUID], SegmentEvent] = {}
        self.deleted_partitions: dict[TopicIdPartition, PartitionDeleteState] = {}
        self.odd = 0
        self.oddities: list[str] = []
        for event in events:
            self.take(event)

    def take(self, event: RemoteLogEvent) -> None:
        """The next event."""
        if isinstance(event, PartitionDeletion):
            self.deleted_partitions[event.partition] = event.state
        elif isinstance(event, SegmentUpdate):
            self._update(event)
        else:
            self._copy_begins(event)

    def _copy_begins(self, event: SegmentEvent) -> None:
        known = self.segments.setdefault((event.segment.partition, event.segment.segment_id), event)
        if known.state is not event.state:
            self._is_odd(f"{event.segment}: {event.state.name} after {known.state.name}")

    def _update(self, event: SegmentUpdate) -> None:
        key = (event.partition, event.segment_id)
        known = self.segments.get(key)
        if known is None:
            # Said again of a segment that is gone, or of one whose first event retention took: nothing can be read.
            if event.state is not RemoteSegmentState.DELETE_SEGMENT_FINISHED:
                self._is_odd(f"{event.partition}: {event.state.name} of {event.segment_id}, of which nothing is known")
        elif event.state is not known.state and event.state not in NEXT_STATES[known.state]:
            self._is_odd(f"{known.segment}: {event.state.name} after {known.state.name}")
        elif event.state is RemoteSegmentState.DELETE_SEGMENT_FINISHED:
            del self.segments[key]
        else:
            self.segments[key] = SegmentEvent(_updated(known.segment, event), event.state)

    def _is_odd(self, words: str) -> None:
        self.odd += 1
        if len(self.oddities) < MOST_ODDITIES:
            self.oddities.append(words)

    def readable(self) -> dict[TopicIdPartition, list[RemoteSegment]]:
        """Per partition the segments that may be read, by start offset; partitions being deleted are left out."""
        found: dict[TopicIdPartition, list[RemoteSegment]] = {}
        for (partition, _), (segment, state) in self.segments.items():
            if state is RemoteSegmentState.COPY_SEGMENT_FINISHED and partition not in self.deleted_partitions:
                found.setdefault(partition, []).append(segment)
        for segments in found.values():
            segments.sort(key=lambda segment: (segment.start_offset, segment.end_offset, segment.segment_id))
        return found


def _updated(segment: RemoteSegment, event: SegmentUpdate) -> RemoteSegment:
    """RemoteLogSegmentMetadata.createWithUpdates: who said it last, when, and the plugin's bytes."""
    return replace(
        segment,
        broker_id=event.broker_id,
        event_timestamp=event.event_timestamp,
        custom_metadata=event.custom_metadata,
    )
