"""Records of __consumer_offsets: what their keys and values say (Kafka's group-coordinator, CoordinatorRecordType).

| key version | is about | value |
|---|---|---|
| 0, 1 | an offset that a group has committed: group, topic, partition | OffsetCommitValue 0-4 |
| 2 | a classic group | GroupMetadataValue 0-4 |
| 3, 11, 17 | a consumer (KIP-848), share (KIP-932) or streams group (KIP-1071) | i16 version, i32 epoch, ... |
| 5, 10, 19 | a member of one of these | a value, or null when it has left |

A null value is a tombstone. Keys of other versions say nothing of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kafkalog_spark.errors import UnsupportedFormat
from kafkalog_spark.log.format.message_reader import MessageReader, tagged_uuid

NEWEST_VALUE = 4
_FIRST_FLEXIBLE = 4
_EXPIRY_VERSION = 1
_TOPIC_ID_TAG = 0
NOT_SAID = -1
"""A time or an epoch that the record's version does not have."""

GROUP_KINDS = {2: "classic", 3: "consumer", 11: "share", 17: "streams"}
"""Key version of the record of a group, and the kind of group."""
MEMBER_KINDS = {5: "consumer", 10: "share", 19: "streams"}
"""Key version of the record of a member, and the kind of its group."""


class OffsetKey(NamedTuple):
    """A committed offset is about this."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """A group. kind: of GROUP_KINDS."""

    group_id: str
    kind: str


class MemberKey(NamedTuple):
    """A member of a group of a newer protocol."""

    group_id: str
    kind: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """Times in ms. leader_epoch, expire_timestamp: NOT_SAID where the record has none."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: UUID | None


@dataclass(frozen=True, slots=True)
class Member:
    """Of a classic group; timeouts in ms."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Group:
    """generation: the epoch, of groups of newer protocols, of which the rest is empty. state_timestamp: ms."""

    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    state_timestamp: int = NOT_SAID
    members: tuple[Member, ...] = ()


Key = OffsetKey | GroupKey | MemberKey


def parse_key(data: bytes) -> Key | None:
    """What a record is about; None for what is neither offset, group nor member. Raises CorruptLog."""
    reader = MessageReader(data, "a key of __consumer_offsets")
    version = reader.int16()
    if version in (0, 1):
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    if version in GROUP_KINDS:
        return GroupKey(reader.string(), GROUP_KINDS[version])
    if version in MEMBER_KINDS:
        return MemberKey(reader.string(), MEMBER_KINDS[version], reader.string())
    return None


def parse_offset(data: bytes) -> CommittedOffset:
    """OffsetCommitValue. Raises CorruptLog; UnsupportedFormat for a version that is newer than Kafka 4.3's."""
    reader, version = _begun(data, "OffsetCommitValue")
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NOT_SAID
    metadata = reader.string()
    committed = reader.int64()
    expires = reader.int64() if version == _EXPIRY_VERSION else NOT_SAID
    topic_id = tagged_uuid(reader.tagged_fields().get(_TOPIC_ID_TAG))
    return CommittedOffset(offset, leader_epoch, metadata, committed, expires, topic_id)


def parse_group(kind: str, data: bytes) -> Group:
    """The value of a group's record. Raises as parse_offset."""
    if kind != "classic":
        reader = MessageReader(data, f"the record of a {kind} group")
        reader.int16()
        return Group(reader.int32())
    reader, version = _begun(data, "GroupMetadataValue")
    protocol_type, generation = reader.string(), reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    since = reader.int64() if version >= 2 else NOT_SAID
    members = tuple(_member(reader, version) for _ in range(reader.nullable_array_length() or 0))
    return Group(generation, protocol_type, protocol, leader, since, members)


def _begun(data: bytes, what: str) -> tuple[MessageReader, int]:
    """The reader, past the version that a value begins with, and that version."""
    reader = MessageReader(data, what)
    version = reader.int16()
    if not 0 <= version <= NEWEST_VALUE:
        raise UnsupportedFormat(f"{what} of version {version}, expected 0 to {NEWEST_VALUE}")
    reader.flexible = version >= _FIRST_FLEXIBLE
    return reader, version


def _member(reader: MessageReader, version: int) -> Member:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout = reader.int32() if version >= 1 else NOT_SAID
    session_timeout = reader.int32()
    subscription, assignment = reader.blob(), reader.blob()
    reader.tagged_fields()
    return Member(
        member_id, instance_id, client_id, client_host, rebalance_timeout, session_timeout, subscription, assignment
    )
