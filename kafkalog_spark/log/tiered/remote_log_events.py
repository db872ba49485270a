"""Events of `__remote_log_metadata`, one in each record value.

A value has three unsigned varints (frame version 1, apiKey, version), then a flexible message. Sources: Kafka's
RemoteLogSegmentMetadataRecord.json and the related files, BytesApiMessageSerde.

    apiKey 0  the copy of a segment starts: metadata and state of the segment
    apiKey 1  the state of a segment changes
    apiKey 2  the remote log of a partition is being deleted
"""

from __future__ import annotations

import uuid
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
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition

_FRAME_VERSION = 1
_MESSAGE_VERSION = 0  # the only version in Kafka 4.3
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
    """Decode and validate the value of a record.

    Any client with access to the topic may have written the value. Callers need no further validation of the event.

    Raises:
        CorruptRemoteMetadata: If the value cannot be decoded, with the byte position. Also if no broker copies such
            a partition or segment: the topic name is invalid or that of an internal topic, or the offsets or leader
            epochs are negative or do not increase.
        UnsupportedFormat: If the frame version or the apiKey is unknown.
    """
    try:
        frame_version, at = read_unsigned_varint(value, 0)
        if frame_version != _FRAME_VERSION:
            raise UnsupportedFormat(
                f"frame version {frame_version} of remote log metadata, only {_FRAME_VERSION} is known"
            )
        api_key, at = read_unsigned_varint(value, at)
        version, at = read_unsigned_varint(value, at)
        if api_key not in _MESSAGES:
            raise UnsupportedFormat(
                f"apiKey {api_key} of remote log metadata (version {version}), 0 to 2 are known"
                + (": 3 is used in snapshot files only" if api_key == _SNAPSHOT else "")
            )
        fields, end = _MESSAGES[api_key].read[0](value, at)  # a later version adds tagged fields only
        if end < len(value):
            raise Malformed(f"{len(value) - end} bytes follow the message", end)
    except Malformed as error:
        raise CorruptRemoteMetadata(str(error), position=error.position) from None
    if api_key == _PARTITION_DELETE:
        partition, broker_id, event_timestamp, state = fields
        return PartitionDeletion(_parse_partition(partition), broker_id, event_timestamp, PartitionDeleteState(state))
    if api_key == _UPDATE:
        (partition, segment_id), broker_id, event_timestamp, custom_metadata, state = fields
        return SegmentUpdate(
            _parse_partition(partition),
            segment_id,
            broker_id,
            event_timestamp,
            custom_metadata,
            RemoteSegmentState(state),
        )
    partition, segment_id = fields.remote_log_segment_id
    epochs = sorted(EpochEntry(*epoch) for epoch in fields.segment_leader_epochs)
    segment = RemoteSegment(
        _parse_partition(partition), segment_id, fields.start_offset, fields.end_offset, tuple(epochs),
        fields.segment_size_in_bytes, fields.max_timestamp_ms, fields.broker_id, fields.event_timestamp_ms,
        fields.custom_metadata, transaction_index_empty=fields.txn_index_empty,
    )  # fmt: skip
    _check_segment(segment)
    return SegmentEvent(segment, RemoteSegmentState(fields.remote_log_segment_state))


def _parse_partition(fields: tuple[str, uuid.UUID, int]) -> TopicIdPartition:
    partition = TopicIdPartition(*fields)
    topic = partition.topic
    if not valid_topic_name(topic):
        raise CorruptRemoteMetadata(f"{topic[:60]!r} is not a valid topic name")
    if is_written_by_broker(topic):
        raise CorruptRemoteMetadata(f"the event concerns {topic}, and no broker copies segments of an internal topic")
    if partition.topic_id.int == 0:
        raise CorruptRemoteMetadata(f"the event concerns {topic} without a topic ID")
    if not 0 <= partition.partition <= MAX_INT32:
        raise CorruptRemoteMetadata(f"the event concerns partition {partition.partition} of {topic}")
    return partition


def _check_segment(segment: RemoteSegment) -> None:
    """Raise CorruptRemoteMetadata for a segment that no broker copies.

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
    is_increasing = starts == sorted(starts) and all(
        entry.epoch < following.epoch for entry, following in pairwise(epochs)
    )
    if not epochs or not is_increasing or epochs[0].epoch < 0 or not 0 <= starts[0] <= starts[-1] <= end:
        shown_epochs = ", ".join(f"{epoch} from {offset}" for epoch, offset in epochs[:3]) or "none"
        raise CorruptRemoteMetadata(
            f"a segment of {name} with the offsets {start} to {end} has the leader epochs {shown_epochs}"
        )


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
    header = uvarint(_FRAME_VERSION) + uvarint(api_key) + uvarint(_MESSAGE_VERSION)
    return header + _MESSAGES[api_key].write[_MESSAGE_VERSION](fields)
