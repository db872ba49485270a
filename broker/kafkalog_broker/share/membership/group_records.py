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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import Record, encoded
from kafkalog_spark.format.messages import decode_key, message
from kafkalog_spark.format.names import OFFSETS_TOPIC

MEMBER, GROUP, TARGET_EPOCH, TARGET, CURRENT, STATE_PARTITIONS = range(10, 16)
"""Key types."""
OF_MEMBERS = frozenset({MEMBER, TARGET, CURRENT})
STABLE = 0
"""MemberState: members of share groups have no other."""

_NAMES = (
    "ShareGroupMemberMetadata",
    "ShareGroupMetadata",
    "ShareGroupTargetAssignmentMetadata",
    "ShareGroupTargetAssignmentMember",
    "ShareGroupCurrentMemberAssignment",
    "ShareGroupStatePartitionMetadata",
)
_KEYS = {kind: message(name + "Key") for kind, name in enumerate(_NAMES, MEMBER)}
_VALUES = {kind: message(name + "Value") for kind, name in enumerate(_NAMES, MEMBER)}

Partitions = Mapping[UUID, tuple[int, ...]]
"""Topic id to sorted partitions."""


class ShareKey(NamedTuple):
    """member_id: empty in keys that name none."""

    kind: int
    group_id: str
    member_id: str = ""


class MemberMetadata(NamedTuple):
    """Subscription and host of a member, in the fields' order of ShareGroupMemberMetadataValue."""

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
    """Raises BrokerError where a text is too long."""
    kind, *names = key
    return encoded(_KEYS[kind], names if kind in OF_MEMBERS else names[:1])


def decode_share_key(key: bytes) -> ShareKey | None:
    """None for keys of anything but share groups. Raises CorruptLog."""
    found = decode_key(OFFSETS_TOPIC, key)
    return None if found is None or found[0] not in _KEYS else ShareKey(found[0], *found[1])


def tombstone(kind: int, group_id: str, member_id: str = "") -> Record:
    return encode_key(ShareKey(kind, group_id, member_id)), None


def _record(kind: int, group_id: str, member_id: str, values: Sequence[Any]) -> Record:
    return encode_key(ShareKey(kind, group_id, member_id)), _VALUES[kind].encode(values)


def member_record(group_id: str, member_id: str, member: MemberMetadata) -> Record:
    return _record(MEMBER, group_id, member_id, member)


def group_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    return _record(GROUP, group_id, "", (epoch, metadata_hash))


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    return _record(TARGET_EPOCH, group_id, "", (epoch, timestamp_ms))


def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    return _record(TARGET, group_id, member_id, (partitions.items(),))


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    values = (current.member_epoch, current.previous_member_epoch, STABLE, current.assigned.items())
    return _record(CURRENT, group_id, member_id, values)


def state_partitions_record(group_id: str, state: StatePartitions) -> Record:
    known = [[(topic, *info) for topic, info in some.items()] for some in (state.initializing, state.initialized)]
    return _record(STATE_PARTITIONS, group_id, "", (*known, state.deleting.items()))


def decode_member(value: bytes) -> MemberMetadata:
    """This and those below raise CorruptLog, and UnsupportedFormat for a later version."""
    return MemberMetadata(*_VALUES[MEMBER].decode(value))


def decode_group(value: bytes) -> tuple[int, int]:
    """(epoch, metadata hash)"""
    epoch, metadata_hash = _VALUES[GROUP].decode(value)
    return epoch, metadata_hash


def decode_target_epoch(value: bytes) -> tuple[int, int]:
    """(epoch, when it was computed in ms, 0 where that is not known)"""
    epoch, timestamp_ms = _VALUES[TARGET_EPOCH].decode(value)
    return epoch, timestamp_ms


def decode_target(value: bytes) -> dict[UUID, tuple[int, ...]]:
    return dict(_VALUES[TARGET].decode(value).topic_partitions)


def decode_current(value: bytes) -> CurrentAssignment:
    epoch, previous, _, assigned = _VALUES[CURRENT].decode(value)
    return CurrentAssignment(epoch, previous, dict(assigned))


def decode_state_partitions(value: bytes) -> StatePartitions:
    initializing, initialized, deleting = _VALUES[STATE_PARTITIONS].decode(value)
    return StatePartitions(_infos(initializing), _infos(initialized), dict(deleting))


def _infos(topics: Iterable[Any]) -> dict[UUID, TopicInfo]:
    return {topic: TopicInfo(name, partitions) for topic, name, partitions in topics}
