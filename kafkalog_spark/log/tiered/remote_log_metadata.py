"""`__remote_log_metadata`: one event a record value, and what they say together of a partition's remote segments.

Value: unsigned varints frame version (1), apiKey, version; then a flexible message. Sources: Kafka's
RemoteLogSegmentMetadataRecord.json and its neighbours, BytesApiMessageSerde, RemoteLogSegmentState.

    apiKey 0  a segment begins to be copied: all that is known of it, and its state
    apiKey 1  a segment's state changes
    apiKey 2  a partition's remote log is being deleted
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import IntEnum
from typing import Any, NamedTuple

from kafkalog_spark.errors import CorruptRemoteMetadata, UnsupportedFormat
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.records import read_varlong
from kafkalog_spark.log.tiered.remote_names import RemoteSegment, TopicIdPartition

# The compact types of Kafka's flexible messages (KIP-482), as far as tiered storage's metadata uses them.
#
# The broker has a codec for the protocol's messages; the reader must not depend on it for three small ones.

_MAX_VARINT = 5  # bytes of an unsigned varint of 32 bits


class CompactReader:
    """Reads one message from its first byte on. Whatever does not fit raises CorruptRemoteMetadata with the byte."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes after what has been read."""
        return len(self._data) - self.at

    def wrong(self, what: str, position: int | None = None) -> CorruptRemoteMetadata:
        """An error that points to the byte that comes next, or to `position`."""
        return CorruptRemoteMetadata(what, position=self.at if position is None else position)

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if not 0 <= size <= self.left:
            raise self.wrong(f"{size} bytes are announced, {self.left} are left")
        self.at += size
        return self._data[self.at - size : self.at]

    def uvarint(self) -> int:
        """An unsigned varint of 32 bits."""
        begins, value = self.at, 0
        for place in range(_MAX_VARINT):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if value >= 2**32:
                    break
                return value
        raise self.wrong("an unsigned varint has more than 32 bits", begins)

    def varlong(self) -> int:
        """A zigzag varint of 64 bits."""
        try:
            value, self.at = read_varlong(self._data, self.at, len(self._data))
        except IndexError:
            raise self.wrong("a varlong does not end") from None
        return value

    def _number(self, form: struct.Struct) -> Any:
        return form.unpack(self.take(form.size))[0]

    def int8(self) -> int:
        return int(self._number(_INT8))

    def int32(self) -> int:
        return int(self._number(_INT32))

    def int64(self) -> int:
        return int(self._number(_INT64))

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.take(16))

    def string(self) -> str:
        """A compact string that is not null."""
        begins = self.at
        size = self.uvarint() - 1
        if size < 0:
            raise self.wrong("a string is null that must not be", begins)
        try:
            return self.take(size).decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong("a string is not UTF-8", begins) from None

    def nullable_bytes(self) -> bytes | None:
        """Compact bytes; None for null."""
        size = self.uvarint() - 1
        return None if size < 0 else self.take(size)

    def array_length(self, least: int) -> int:
        """How many elements of at least `least` bytes follow. Raises for null, and for more than there is room for."""
        begins = self.at
        count = self.uvarint() - 1
        if not 0 <= count * least <= self.left:
            raise self.wrong(f"an array announces {count} elements, {self.left} bytes are left", begins)
        return count

    def tagged_fields(self) -> dict[int, bytes]:
        """The tagged fields that stand here, by tag; tags must rise."""
        found: dict[int, bytes] = {}
        last = -1
        for _ in range(self.uvarint()):
            begins = self.at
            tag = self.uvarint()
            if tag <= last:
                raise self.wrong(f"tag {tag} follows tag {last}", begins)
            last = tag
            found[tag] = self.take(self.uvarint())
        return found

    def end(self) -> None:
        """Raise when bytes are left."""
        if self.left:
            raise self.wrong(f"{self.left} bytes follow the message")


_INT8, _INT32, _INT64 = struct.Struct(">b"), struct.Struct(">i"), struct.Struct(">q")


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


# What Aiven's plugin keeps of a segment in `__remote_log_metadata` (SegmentCustomMetadataSerde): tagged fields.
#
# 0 remote_size VARLONG, bytes of all its objects; 1 object_prefix, 2 object_key COMPACT_STRING: where log and
# indexes lie, whatever the plugin's `key.prefix` has become since. The manifest lies below the prefix of today.


class CustomMetadata(NamedTuple):
    """Fields of the plugin's `custom.metadata.fields.include`; None for those that it does not include."""

    remote_size: int | None = None
    object_prefix: str | None = None
    object_key: str | None = None


def parse_custom_metadata(data: bytes) -> CustomMetadata:
    """Empty data has no fields; unknown tags are passed over. Raises CorruptRemoteMetadata."""
    if not data:
        return CustomMetadata()
    found: dict[int, bytes] = CompactReader(data).tagged_fields()
    size = CompactReader(found[0]).varlong() if 0 in found else None
    texts = [CompactReader(found[tag]).string() if tag in found else None for tag in (1, 2)]
    return CustomMetadata(size, *texts)
