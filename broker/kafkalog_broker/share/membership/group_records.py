"""The records of share groups in __consumer_offsets, bit for bit as Kafka 4.3 writes them (key types 10 to 15).

| record | key type | value |
|---|---|---|
| a member and what it subscribes to | 10 | ShareGroupMemberMetadataValue |
| a group: its epoch | 11 | ShareGroupMetadataValue |
| the epoch of the target assignment | 12 | ShareGroupTargetAssignmentMetadataValue |
| what a member is to have | 13 | ShareGroupTargetAssignmentMemberValue |
| what a member has | 14 | ShareGroupCurrentMemberAssignmentValue |
| which share partitions have state | 15 | ShareGroupStatePartitionMetadataValue |

A key begins with its type; 10, 13 and 14 name group and member, the others the group. A null value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import Record
from kafkalog_broker.protocol.frames import compact_string, uvarint
from kafkalog_broker.share.message_parts import (
    I8,
    I16,
    I32,
    I64,
    VALUE_VERSION,
    array,
    int32s,
    key_string,
    read_int32s,
    read_number,
    read_uuid,
    tagged_number,
    value_reader,
)
from kafkalog_spark.format.internal_records import MessageReader

MEMBER, GROUP, TARGET_EPOCH, TARGET, CURRENT, STATE_PARTITIONS = range(10, 16)
"""Key types."""
OF_MEMBERS = frozenset({MEMBER, TARGET, CURRENT})
STABLE = 0
"""MemberState: members of share groups have no other."""

_ASSIGNMENT_TIMESTAMP = 0  # tag

Partitions = Mapping[UUID, tuple[int, ...]]
"""Topic id to sorted partitions."""


class ShareKey(NamedTuple):
    """member_id: empty in keys that name none."""

    kind: int
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    """Sorted names."""


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    member_epoch: int
    previous_member_epoch: int
    assigned: Partitions


class TopicInfo(NamedTuple):
    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """Share partitions whose state is being initialized, is there, or is being deleted (topic id to name)."""

    initializing: Mapping[UUID, TopicInfo] = field(default_factory=dict)
    initialized: Mapping[UUID, TopicInfo] = field(default_factory=dict)
    deleting: Mapping[UUID, str] = field(default_factory=dict)


def encode_key(key: ShareKey) -> bytes:
    data = I16.pack(key.kind) + key_string(key.group_id)
    return data + key_string(key.member_id) if key.kind in OF_MEMBERS else data


def decode_share_key(key: bytes) -> ShareKey | None:
    """None for keys of anything but share groups. Raises CorruptLog."""
    reader = MessageReader(key, "key of __consumer_offsets")
    kind = reader.int16()
    if not MEMBER <= kind <= STATE_PARTITIONS:
        return None
    return ShareKey(kind, reader.string(), reader.string() if kind in OF_MEMBERS else "")


def tombstone(kind: int, group_id: str, member_id: str = "") -> Record:
    return encode_key(ShareKey(kind, group_id, member_id)), None


def member_record(group_id: str, member_id: str, member: MemberMetadata) -> Record:
    names = array([compact_string(name) for name in member.topics])
    text = compact_string(member.rack_id) + compact_string(member.client_id) + compact_string(member.client_host)
    return encode_key(ShareKey(MEMBER, group_id, member_id)), VALUE_VERSION + text + names + b"\0"


def group_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    return encode_key(ShareKey(GROUP, group_id)), VALUE_VERSION + I32.pack(epoch) + I64.pack(metadata_hash) + b"\0"


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    tags = tagged_number(_ASSIGNMENT_TIMESTAMP, I64, timestamp_ms, 0)
    return encode_key(ShareKey(TARGET_EPOCH, group_id)), VALUE_VERSION + I32.pack(epoch) + tags


def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    return encode_key(ShareKey(TARGET, group_id, member_id)), VALUE_VERSION + _partitions(partitions) + b"\0"


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    epochs = I32.pack(current.member_epoch) + I32.pack(current.previous_member_epoch) + I8.pack(STABLE)
    value = VALUE_VERSION + epochs + _partitions(current.assigned) + b"\0"
    return encode_key(ShareKey(CURRENT, group_id, member_id)), value


def state_partitions_record(group_id: str, state: StatePartitions) -> Record:
    deleting = [topic.bytes + compact_string(name) + uvarint(0) for topic, name in state.deleting.items()]
    lists = _infos(state.initializing) + _infos(state.initialized) + array(deleting)
    return encode_key(ShareKey(STATE_PARTITIONS, group_id)), VALUE_VERSION + lists + b"\0"


def decode_member(value: bytes) -> MemberMetadata:
    """This and those below raise CorruptLog, and UnsupportedFormat for a later version."""
    reader = value_reader(value, "ShareGroupMemberMetadataValue")
    rack, client_id, client_host = reader.nullable_string(), reader.string(), reader.string()
    return MemberMetadata(rack, client_id, client_host, tuple(reader.string() for _ in range(reader.array_length())))


def decode_group(value: bytes) -> tuple[int, int]:
    """(epoch, metadata hash)"""
    reader = value_reader(value, "ShareGroupMetadataValue")
    return reader.int32(), reader.int64()


def decode_target_epoch(value: bytes) -> tuple[int, int]:
    """(epoch, when it was computed in ms, 0 where that is not known)"""
    reader = value_reader(value, "ShareGroupTargetAssignmentMetadataValue")
    return reader.int32(), read_number(reader, _ASSIGNMENT_TIMESTAMP, I64, 0)


def decode_target(value: bytes) -> dict[UUID, tuple[int, ...]]:
    return _read_partitions(value_reader(value, "ShareGroupTargetAssignmentMemberValue"))


def decode_current(value: bytes) -> CurrentAssignment:
    reader = value_reader(value, "ShareGroupCurrentMemberAssignmentValue")
    epoch, previous, _ = reader.int32(), reader.int32(), reader.int8()
    return CurrentAssignment(epoch, previous, _read_partitions(reader))


def decode_state_partitions(value: bytes) -> StatePartitions:
    reader = value_reader(value, "ShareGroupStatePartitionMetadataValue")
    initializing, initialized = _read_infos(reader), _read_infos(reader)
    deleting = {}
    for _ in range(reader.array_length()):
        topic = read_uuid(reader)
        deleting[topic] = reader.string()
        reader.tagged_fields()
    return StatePartitions(initializing, initialized, deleting)


def _partitions(partitions: Partitions) -> bytes:
    return array([topic.bytes + int32s(indexes) + uvarint(0) for topic, indexes in partitions.items()])


def _infos(topics: Mapping[UUID, TopicInfo]) -> bytes:
    return array(
        [
            topic.bytes + compact_string(info.name) + int32s(info.partitions) + uvarint(0)
            for topic, info in topics.items()
        ]
    )


def _read_partitions(reader: MessageReader) -> dict[UUID, tuple[int, ...]]:
    partitions = {}
    for _ in range(reader.array_length()):
        topic = read_uuid(reader)
        partitions[topic] = read_int32s(reader)
        reader.tagged_fields()
    return partitions


def _read_infos(reader: MessageReader) -> dict[UUID, TopicInfo]:
    topics = {}
    for _ in range(reader.array_length()):
        topic = read_uuid(reader)
        topics[topic] = TopicInfo(reader.string(), read_int32s(reader))
        reader.tagged_fields()
    return topics
