"""Events of `__remote_log_metadata`, one in each record value, and the state of remote segments that they define.

A value has three unsigned varints (frame version 1, apiKey, version), then a flexible message. Sources: Kafka's
RemoteLogSegmentMetadataRecord.json and the related files, BytesApiMessageSerde, RemoteLogSegmentState.

    apiKey 0  the copy of a segment starts: metadata and state of the segment
    apiKey 1  the state of a segment changes
    apiKey 2  the remote log of a partition is being deleted
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from kafkalog_spark.errors import CorruptRemoteMetadata, UnsupportedFormat
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.layout import MAX_INT32
from kafkalog_spark.format.messages.internal import message
from kafkalog_spark.format.messages.wire import Malformed, read_unsigned_varint
from kafkalog_spark.format.names import is_written_by_broker, valid_topic_name
from kafkalog_spark.format.varints import uvarint
from kafkalog_spark.log.tiered.remote_names import RemoteSegment, TopicIdPartition

_FRAME_VERSION = 1
_SEGMENT, _UPDATE, _PARTITION_DELETE, _SNAPSHOT = range(4)
_MESSAGES = {
    _SEGMENT: message("RemoteLogSegmentMetadataRecord"),
    _UPDATE: message("RemoteLogSegmentMetadataUpdateRecord"),
    _PARTITION_DELETE: message("RemotePartitionDeleteMetadataRecord"),
}


class RemoteSegmentState(IntEnum):
    """Kafka's RemoteLogSegmentState. A segment may be read only in the state COPY_SEGMENT_FINISHED."""

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
"""Valid next states of each state; a repeated state is valid too (RemoteLogSegmentState.isValidTransition)."""


class SegmentEvent(NamedTuple):
    """Start of the copy of a segment (apiKey 0)."""

    segment: RemoteSegment
    state: RemoteSegmentState


class SegmentUpdate(NamedTuple):
    """Change of the state of a segment (apiKey 1). `event_timestamp` is in ms."""

    partition: TopicIdPartition
    segment_id: uuid.UUID
    broker_id: int
    event_timestamp: int
    custom_metadata: bytes | None
    state: RemoteSegmentState


class PartitionDeletion(NamedTuple):
    """Deletion of the remote log of a partition (apiKey 2). `event_timestamp` is in ms."""

    partition: TopicIdPartition
    broker_id: int
    event_timestamp: int
    state: PartitionDeleteState


RemoteLogEvent = SegmentEvent | SegmentUpdate | PartitionDeletion


def decode_event(value: bytes) -> RemoteLogEvent:
    """Decode and validate the value of a record, which may come from any client that can write to the topic.

    Callers need no further validation of the event.

    Raises:
        CorruptRemoteMetadata: If the value cannot be decoded, with the byte position. Also if no broker would copy the
            partition or segment: the topic name is invalid or that of an internal topic, or the offsets or leader
            epochs are negative or do not increase.
        UnsupportedFormat: If the frame version or the apiKey is unknown.
    """
    try:
        frame, at = read_unsigned_varint(value, 0)
        if frame != _FRAME_VERSION:
            raise UnsupportedFormat(f"frame version {frame} of remote log metadata, only {_FRAME_VERSION} is known")
        api_key, at = read_unsigned_varint(value, at)
        version, at = read_unsigned_varint(value, at)
        if api_key not in _MESSAGES:
            raise UnsupportedFormat(
                f"apiKey {api_key} of remote log metadata (version {version}), 0 to 2 are known"
                + (": 3 stands in snapshot files only" if api_key == _SNAPSHOT else "")
            )
        fields, end = _MESSAGES[api_key].read[0](value, at)  # a later version adds tagged fields only
        if end < len(value):
            raise Malformed(f"{len(value) - end} bytes follow the message", end)
    except Malformed as error:
        raise CorruptRemoteMetadata(str(error), position=error.position) from None
    if api_key == _PARTITION_DELETE:
        partition, broker_id, event_timestamp, state = fields
        return PartitionDeletion(_partition(partition), broker_id, event_timestamp, PartitionDeleteState(state))
    if api_key == _UPDATE:
        (partition, segment_id), broker_id, event_timestamp, custom, state = fields
        return SegmentUpdate(
            _partition(partition), segment_id, broker_id, event_timestamp, custom, RemoteSegmentState(state)
        )
    partition, segment_id = fields.remote_log_segment_id
    epochs = sorted(EpochEntry(*epoch) for epoch in fields.segment_leader_epochs)
    segment = RemoteSegment(
        _partition(partition), segment_id, fields.start_offset, fields.end_offset, tuple(epochs),
        fields.segment_size_in_bytes, fields.max_timestamp_ms, fields.broker_id, fields.event_timestamp_ms,
        fields.custom_metadata, transaction_index_empty=fields.txn_index_empty,
    )  # fmt: skip
    _check_segment(segment)
    return SegmentEvent(segment, RemoteSegmentState(fields.remote_log_segment_state))


def _partition(fields: tuple[str, uuid.UUID, int]) -> TopicIdPartition:
    partition = TopicIdPartition(*fields)
    topic = partition.topic
    if not valid_topic_name(topic):
        raise CorruptRemoteMetadata(f"{topic[:60]!r} is no topic's name")
    if is_written_by_broker(topic):
        raise CorruptRemoteMetadata(f"it is about {topic}, and no broker copies segments of an internal topic")
    if partition.topic_id.int == 0:
        raise CorruptRemoteMetadata(f"it is about {topic} without a topic ID")
    if not 0 <= partition.partition <= MAX_INT32:
        raise CorruptRemoteMetadata(f"it is about partition {partition.partition} of {topic}")
    return partition


def _check_segment(segment: RemoteSegment) -> None:
    """Raise CorruptRemoteMetadata for a segment that no broker would copy.

    Kafka's RemoteLogSegmentMetadata refuses the same offsets, and segments without leader epochs. The other conditions
    follow from RemoteLogManager.copyLogSegment.
    """
    start, end, epochs = segment.start_offset, segment.end_offset, segment.leader_epochs
    name = f"{segment.partition.topic}-{segment.partition.partition}"
    if not 0 <= start <= end:
        raise CorruptRemoteMetadata(f"a segment of {name} has the offsets {start} to {end}")
    if segment.size < 0:
        raise CorruptRemoteMetadata(f"a segment of {name} has {segment.size} bytes")
    starts = [entry.start_offset for entry in epochs]
    is_rising = all(one.epoch < after.epoch for one, after in pairwise(epochs)) and starts == sorted(starts)
    if not epochs or not is_rising or epochs[0].epoch < 0 or not 0 <= starts[0] <= starts[-1] <= end:
        shown = ", ".join(f"{epoch} from {offset}" for epoch, offset in epochs[:3]) or "none"
        raise CorruptRemoteMetadata(
            f"a segment of {name} with the offsets {start} to {end} has the leader epochs {shown}"
        )


_MESSAGE_VERSION = 0  # the only version in Kafka 4.3


def encode_event(event: RemoteLogEvent) -> bytes:
    """Return the record value of an event, as Kafka's RemoteLogMetadataSerde writes it."""
    if isinstance(event, PartitionDeletion):
        api_key: int = _PARTITION_DELETE
        fields: tuple[object, ...] = event
    elif isinstance(event, SegmentUpdate):
        api_key, fields = _UPDATE, ((event.partition, event.segment_id), *event[2:])
    else:
        segment = event.segment
        api_key = _SEGMENT
        fields = (
            (segment.partition, segment.segment_id), segment.start_offset, segment.end_offset, segment.broker_id,
            segment.max_timestamp, segment.event_timestamp, segment.leader_epochs, segment.size,
            segment.custom_metadata, event.state, segment.transaction_index_empty,
        )  # fmt: skip
    head = uvarint(_FRAME_VERSION) + uvarint(api_key) + uvarint(_MESSAGE_VERSION)
    return head + _MESSAGES[api_key].write[_MESSAGE_VERSION](fields)


_M32 = (1 << 32) - 1
_MURMUR_FACTOR, _MURMUR_SEED = 0x5BD1E995, 0x9747B28C  # org.apache.kafka.common.utils.Utils.murmur2


def metadata_partition(partition: TopicIdPartition, partitions: int) -> int:
    """Return the metadata partition that has the events of a partition (RemoteLogMetadataTopicPartitioner).

    It is murmur2 of the four bytes of Java's Objects.hash of topic ID and partition.

    Args:
        partition: Partition whose segments are copied.
        partitions: Number of partitions of `__remote_log_metadata`.
    """
    high, low = partition.topic_id.int >> 64, partition.topic_id.int & (1 << 64) - 1
    hashed = 1
    for part in (low ^ low >> 32, high ^ high >> 32, partition.partition):
        hashed = (31 * hashed + part) & _M32
    word = int.from_bytes(hashed.to_bytes(4, "big"), "little") * _MURMUR_FACTOR & _M32
    word = (word ^ word >> 24) * _MURMUR_FACTOR & _M32
    mixed = ((_MURMUR_SEED ^ 4) * _MURMUR_FACTOR & _M32) ^ word
    mixed = (mixed ^ mixed >> 13) * _MURMUR_FACTOR & _M32
    return ((mixed ^ mixed >> 15) & 0x7FFFFFFF) % partitions


def following(before: SegmentEvent | None, event: SegmentEvent | SegmentUpdate) -> tuple[SegmentEvent | None, bool]:
    """Apply an event to the state of its segment.

    Args:
        before: State before the event, or None if the segment is unknown or deleted.
        event: The event.

    Returns:
        The state after the event, or None if the segment is unknown or deleted; and True if the event is an invalid
        transition and was ignored.
    """
    if isinstance(event, SegmentEvent):
        return before or event, before is not None and before.state is not event.state
    if before is None or (event.state is not before.state and event.state not in NEXT_STATES[before.state]):
        # DELETE_SEGMENT_FINISHED of an unknown segment is valid: it is repeated, or retention removed the first event.
        return before, before is not None or event.state is not RemoteSegmentState.DELETE_SEGMENT_FINISHED
    if event.state is RemoteSegmentState.DELETE_SEGMENT_FINISHED:
        return None, False
    # RemoteLogSegmentMetadata.createWithUpdates: broker, time and custom metadata of the last event
    segment = replace(
        before.segment, broker_id=event.broker_id, event_timestamp=event.event_timestamp,
        custom_metadata=event.custom_metadata,
    )  # fmt: skip
    return SegmentEvent(segment, event.state), False


@dataclass(frozen=True)
class SegmentStates:
    """Remote segments of a partition.

    Attributes:
        readable: Segments whose copy is finished, by ID.
        refused: IDs of segments whose copy is not finished, or that are being deleted or deleted.
    """

    readable: Mapping[uuid.UUID, RemoteSegment]
    refused: frozenset[uuid.UUID]


class RemoteLogState:
    """State of all remote segments, built from events. The events of one partition must be in offset order.

    Attributes:
        segments: Metadata and state of each segment that is not deleted, by partition and segment ID.
        deleted_segments: IDs of deleted segments.
        deleted_partitions: Partitions whose remote log is being deleted or deleted.
        odd: Number of invalid transitions, which are ignored, as in a broker.
    """

    def __init__(self, events: Iterable[RemoteLogEvent] = ()) -> None:
        self.segments: dict[tuple[TopicIdPartition, uuid.UUID], SegmentEvent] = {}
        self.deleted_segments: dict[TopicIdPartition, set[uuid.UUID]] = {}
        self.deleted_partitions: dict[TopicIdPartition, PartitionDeleteState] = {}
        self.odd = 0
        for event in events:
            self.take(event)

    def take(self, event: RemoteLogEvent) -> None:
        """Apply the next event."""
        if isinstance(event, PartitionDeletion):
            self.deleted_partitions[event.partition] = event.state
            return
        segment = event.segment if isinstance(event, SegmentEvent) else event
        if event.state is RemoteSegmentState.DELETE_SEGMENT_FINISHED:
            self.deleted_segments.setdefault(segment.partition, set()).add(segment.segment_id)
        key = (segment.partition, segment.segment_id)
        after, is_odd = following(self.segments.get(key), event)
        self.odd += is_odd
        if after is not None:
            self.segments[key] = after
        else:
            self.segments.pop(key, None)

    def by_partition(self) -> dict[TopicIdPartition, SegmentStates]:
        """Return the segments of each partition that has events about segments."""
        readable: dict[TopicIdPartition, dict[uuid.UUID, RemoteSegment]] = {}
        refused = {partition: set(ids) for partition, ids in self.deleted_segments.items()}
        for (partition, segment_id), (segment, state) in self.segments.items():
            if state is RemoteSegmentState.COPY_SEGMENT_FINISHED and partition not in self.deleted_partitions:
                readable.setdefault(partition, {})[segment_id] = segment
            else:
                refused.setdefault(partition, set()).add(segment_id)
        return {
            partition: SegmentStates(readable.get(partition, {}), frozenset(refused.get(partition, ())))
            for partition in readable.keys() | refused.keys()
        }
