"""`__remote_log_metadata`: one event a record value, and what they say together of a partition's remote segments.

Value: unsigned varints frame version (1), apiKey, version; then a flexible message. Sources: Kafka's
RemoteLogSegmentMetadataRecord.json and its neighbours, BytesApiMessageSerde, RemoteLogSegmentState.

    apiKey 0  a segment begins to be copied: all that is known of it, and its state
    apiKey 1  a segment's state changes
    apiKey 2  a partition's remote log is being deleted
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
    """Return the event of a record's value, which anybody who can write to the topic may have chosen.

    It is validated here, and not again.

    Raises:
        CorruptRemoteMetadata: If it is not an event, with the byte; or if no broker copies such a partition or segment:
            its topic has no valid name or is an internal one, its offsets or leader epochs do not rise from 0 on.
        UnsupportedFormat: For another frame version or apiKey.
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
    """Kafka's RemoteLogSegmentMetadata refuses the same offsets and segments without epochs; the rest follows from
    RemoteLogManager.copyLogSegment."""
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


_MESSAGE_VERSION = 0  # the only one of Kafka 4.3's


def encode_event(event: RemoteLogEvent) -> bytes:
    """A record's value, as Kafka's RemoteLogMetadataSerde writes it."""
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
    """Which of the topic's `partitions` has the events of a user's partition (RemoteLogMetadataTopicPartitioner):
    murmur2 of the four bytes of Java's Objects.hash of topic id and partition."""
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
    """A segment after an event about it, None where nobody knows it or it is deleted; True for an event that does not
    follow from those before, and changes nothing."""
    if isinstance(event, SegmentEvent):
        return before or event, before is not None and before.state is not event.state
    if before is None or (event.state is not before.state and event.state not in NEXT_STATES[before.state]):
        # Said again of a segment that is gone, or of one whose first event retention took: nothing can be read.
        return before, before is not None or event.state is not RemoteSegmentState.DELETE_SEGMENT_FINISHED
    if event.state is RemoteSegmentState.DELETE_SEGMENT_FINISHED:
        return None, False
    # RemoteLogSegmentMetadata.createWithUpdates: who said it last, when, and the plugin's bytes
    segment = replace(
        before.segment, broker_id=event.broker_id, event_timestamp=event.event_timestamp,
        custom_metadata=event.custom_metadata,
    )  # fmt: skip
    return SegmentEvent(segment, event.state), False


@dataclass(frozen=True)
class SegmentStates:
    """Segments of a partition. readable: by id. refused: those whose copy was not finished, or that are deleted."""

    readable: Mapping[uuid.UUID, RemoteSegment]
    refused: frozenset[uuid.UUID]


class RemoteLogState:
    """State after the events so far; those of one partition must come in the order of the topic's offsets. segments:
    (partition, segment id) -> segment and its state, deleted ones left out. deleted_segments: their ids.
    deleted_partitions: those whose remote log is going or gone. odd: how many events did not follow from those before;
    they change nothing, as a broker ignores them."""

    def __init__(self, events: Iterable[RemoteLogEvent] = ()) -> None:
        self.segments: dict[tuple[TopicIdPartition, uuid.UUID], SegmentEvent] = {}
        self.deleted_segments: dict[TopicIdPartition, set[uuid.UUID]] = {}
        self.deleted_partitions: dict[TopicIdPartition, PartitionDeleteState] = {}
        self.odd = 0
        for event in events:
            self.take(event)

    def take(self, event: RemoteLogEvent) -> None:
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
        """The segments of each partition that an event was about."""
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
