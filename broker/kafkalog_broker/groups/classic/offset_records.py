"""Keys and values of the records in __consumer_offsets, bit for bit as Kafka 4.3 writes them.

| record | key | value, as written | read |
|---|---|---|---|
| an offset that a group has committed | OffsetCommitKey 1 | OffsetCommitValue 4, or 1 with an expiry of its own | 0-4 |
| a group | GroupMetadataKey 2 | GroupMetadataValue 3 | 0-4 |

A null value is a tombstone. A key begins with its version, which also says what it is a key of: 0 and 1 offsets, 2
groups, 3 and more the groups of newer protocols, which `decode_key` passes over: KIP-848 (modern/changes.py), KIP-932
and KIP-1071.
Layouts: OffsetCommitKey.json and its neighbours in Kafka's group-coordinator.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.frames import uvarint
from kafkalog_spark.errors import UnsupportedFormat
from kafkalog_spark.format.internal_records import MessageReader, tagged_uuid

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 4
"""Flexible, and carries the topic id in a tagged field since Kafka 4.2 (KIP-848's topic ids)."""
OFFSET_VALUE_WITH_EXPIRY_VERSION = 1
"""The only version with a field for it: OffsetCommit v2-4 could ask for a retention time."""
GROUP_VALUE_VERSION = 3

_FIRST_FLEXIBLE_VERSION = 4
_NEWEST_READ = 4
_TOPIC_ID_TAG = 0
_NO_EXPIRY = -1
_NO_EPOCH = -1
_LONGEST_STRING = 2**15 - 1

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group_id: str


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset. Times in ms; no expiry of its own and no leader epoch: -1; topic id unknown: None."""

    offset: int
    commit_timestamp_ms: int
    leader_epoch: int = _NO_EPOCH
    metadata: str = ""
    expire_timestamp_ms: int = _NO_EXPIRY
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """Its metadata for the protocol that the group has chosen."""
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    """When the group got into its state; -1 in records of Kafka 2.0 and before."""
    members: tuple[MemberMetadata, ...] = ()


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _I16.pack(OFFSET_KEY_VERSION) + key_string(group_id) + key_string(topic) + _I32.pack(partition)


def group_key(group_id: str) -> bytes:
    return _I16.pack(GROUP_KEY_VERSION) + key_string(group_id)


def offset_value(committed: OffsetAndMetadata) -> bytes:
    if committed.expire_timestamp_ms != _NO_EXPIRY:
        head = _I16.pack(OFFSET_VALUE_WITH_EXPIRY_VERSION) + _I64.pack(committed.offset)
        times = _I64.pack(committed.commit_timestamp_ms) + _I64.pack(committed.expire_timestamp_ms)
        return head + key_string(committed.metadata) + times
    metadata = committed.metadata.encode()
    parts = [
        _I16.pack(OFFSET_VALUE_VERSION),
        _I64.pack(committed.offset),
        _I32.pack(committed.leader_epoch),
        uvarint(len(metadata) + 1),
        metadata,
        _I64.pack(committed.commit_timestamp_ms),
    ]
    if committed.topic_id is None:
        parts.append(b"\0")
    else:  # one tagged field: tag, size, the id
        parts.append(bytes((1, _TOPIC_ID_TAG, 16)) + committed.topic_id.bytes)
    return b"".join(parts)


def group_value(group: GroupMetadata) -> bytes:
    parts = [
        _I16.pack(GROUP_VALUE_VERSION),
        key_string(group.protocol_type),
        _I32.pack(group.generation),
        _nullable_string(group.protocol),
        _nullable_string(group.leader),
        _I64.pack(group.state_timestamp_ms),
        _I32.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            key_string(member.member_id),
            _nullable_string(member.group_instance_id),
            key_string(member.client_id),
            key_string(member.client_host),
            _I32.pack(member.rebalance_timeout_ms),
            _I32.pack(member.session_timeout_ms),
            _I32.pack(len(member.subscription)),
            member.subscription,
            _I32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def decode_key(key: bytes) -> OffsetKey | GroupKey | None:
    """What a record is about; None for records of groups of newer protocols.

    Raises CorruptLog for bytes that are no key.
    """
    reader = MessageReader(key, "key of __consumer_offsets")
    version = reader.int16()
    if version in (0, OFFSET_KEY_VERSION):
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    if version == GROUP_KEY_VERSION:
        return GroupKey(reader.string())
    return None


def decode_offset_value(value: bytes) -> OffsetAndMetadata:
    """Raises CorruptLog, and UnsupportedFormat for a version that is newer than Kafka 4.3's."""
    reader, version = _begun(value, "OffsetCommitValue")
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else _NO_EPOCH
    metadata = reader.string()
    commit_timestamp = reader.int64()
    expire_timestamp = reader.int64() if version == OFFSET_VALUE_WITH_EXPIRY_VERSION else _NO_EXPIRY
    topic_id = tagged_uuid(reader.tagged_fields().get(_TOPIC_ID_TAG))
    return OffsetAndMetadata(offset, commit_timestamp, leader_epoch, metadata, expire_timestamp, topic_id)


def decode_group_value(value: bytes) -> GroupMetadata:
    """Raises CorruptLog, and UnsupportedFormat for a version that is newer than Kafka 4.3's."""
    reader, version = _begun(value, "GroupMetadataValue")
    protocol_type, generation = reader.string(), reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    timestamp = reader.int64() if version >= 2 else -1
    members = tuple(_decode_member(reader, version) for _ in range(reader.array_length()))
    return GroupMetadata(protocol_type, generation, protocol, leader, timestamp, members)


def _begun(value: bytes, what: str) -> tuple[MessageReader, int]:
    """The reader, past the version that a value begins with, and that version."""
    reader = MessageReader(value, what)
    version = reader.int16()
    if not 0 <= version <= _NEWEST_READ:
        raise UnsupportedFormat(f"{what} of version {version}, expected 0-{_NEWEST_READ}")
    reader.flexible = version >= _FIRST_FLEXIBLE_VERSION
    return reader, version


def _decode_member(reader: MessageReader, version: int) -> MemberMetadata:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout = reader.int32() if version >= 1 else -1
    session_timeout = reader.int32()
    subscription, assignment = reader.blob(), reader.blob()
    reader.tagged_fields()
    if rebalance_timeout == -1:
        rebalance_timeout = session_timeout
    return MemberMetadata(
        member_id, group_instance_id, client_id, client_host, rebalance_timeout, session_timeout, subscription,
        assignment,
    )  # fmt: skip


def key_string(text: str) -> bytes:
    """As keys hold it. Raises BrokerError where it is too long."""
    data = text.encode()
    if len(data) > _LONGEST_STRING:
        # Kafka fails in the same place: its own records cannot hold what a flexible request can.
        raise BrokerError(ErrorCode.unknown_server_error, f"{len(data)} bytes of text, at most {_LONGEST_STRING} fit")
    return _I16.pack(len(data)) + data


def _nullable_string(text: str | None) -> bytes:
    return _I16.pack(-1) if text is None else key_string(text)
