"""Changes of consumer groups, and the records of __consumer_offsets that they are (GroupCoordinatorRecordHelpers).

| kind | key | value |
|---|---|---|
| EPOCH | 3 group | epoch; hash of the topics' metadata (KIP-1101) in a tagged field |
| TOPICS | 4 group | the topics' metadata, as Kafka 4.0 wrote it; only removed nowadays |
| MEMBER | 5 group, member | what a member says about itself |
| TARGET_EPOCH | 6 group | epoch and time of the target assignment |
| TARGET | 7 group, member | the partitions that a member is to have |
| CURRENT | 8 group, member | its epoch, and the partitions that it has |
| REGEX | 16 group, expression | the topics that an expression matches |

A value of None is a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from kafkalog_broker.coordinator.coordinator_log import Record, encoded
from kafkalog_broker.groups.consumer.consumer_group import ClassicMember, MemberState, Owned, Partitions, ResolvedRegex
from kafkalog_spark.format.messages import Message, decode_key, message
from kafkalog_spark.format.names import OFFSETS_TOPIC


class Kind(IntEnum):
    """The version of a key, which says what it is a key of (CoordinatorRecordType)."""

    EPOCH = 3
    TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


_NAMES = {
    Kind.EPOCH: "ConsumerGroupMetadata",
    Kind.TOPICS: "ConsumerGroupPartitionMetadata",
    Kind.MEMBER: "ConsumerGroupMemberMetadata",
    Kind.TARGET_EPOCH: "ConsumerGroupTargetAssignmentMetadata",
    Kind.TARGET: "ConsumerGroupTargetAssignmentMember",
    Kind.CURRENT: "ConsumerGroupCurrentMemberAssignment",
    Kind.REGEX: "ConsumerGroupRegularExpression",
}
_KEYS = {kind: message(name + "Key") for kind, name in _NAMES.items()}
_VALUES: dict[Kind, Message] = {
    kind: message(name + "Value") for kind, name in _NAMES.items() if kind is not Kind.TOPICS
}
_OF_MEMBERS = {Kind.MEMBER, Kind.TARGET, Kind.CURRENT, Kind.REGEX}


class EpochValue(NamedTuple):
    epoch: int
    metadata_hash: int


class TargetEpochValue(NamedTuple):
    """timestamp_ms: when the assignment was made; 0: not known (Kafka before 4.3)."""

    epoch: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class MemberValue:
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]
    regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMember | None


@dataclass(frozen=True, slots=True)
class CurrentValue:
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Owned
    pending_revocation: Owned


class Change(NamedTuple):
    """name: of the member, or the expression; "" for what is about the group. value: by kind, None for a tombstone."""

    kind: Kind
    group_id: str
    name: str
    value: Any


def encode(change: Change) -> Record:
    """Its record. Raises BrokerError where a text is too long for a key."""
    kind, value = change.kind, change.value
    names = (change.group_id, change.name) if kind in _OF_MEMBERS else (change.group_id,)
    key = encoded(_KEYS[kind], names)
    if value is None:
        return key, None
    return key, _VALUES[kind].encode(_FIELDS[kind](value) if kind in _FIELDS else value)


def decode(key: bytes, value: bytes | None) -> Change | None:
    """None for the key of something else. Raises CorruptLog, and UnsupportedFormat for a version that is newer than
    Kafka 4.3's."""
    found = decode_key(OFFSETS_TOPIC, key)
    if found is None or found[0] not in _KINDS:
        return None
    kind = _KINDS[found[0]]
    group_id, name = (*found[1], "")[:2]
    if value is None:
        return Change(kind, group_id, name, None)
    if kind is Kind.TOPICS:  # nobody asks for more than that it is there
        return Change(kind, group_id, name, True)
    fields = _VALUES[kind].decode(value, f"{kind.name} record of a consumer group")
    return Change(kind, group_id, name, _MEANINGS[kind](fields))


_KINDS = {kind.value: kind for kind in Kind}

# ---- values: the fields of their messages, and what they mean


def _member_fields(value: MemberValue) -> tuple[Any, ...]:
    classic = value.classic
    return (
        value.instance_id, value.rack_id, value.client_id, value.client_host, sorted(value.topics), value.regex,
        value.rebalance_timeout_ms, value.assignor,
        None if classic is None else (classic.session_timeout_ms, classic.protocols),
    )  # fmt: skip


def _member(fields: Any) -> MemberValue:
    instance, rack, client_id, client_host, topics, regex, timeout, assignor, classic = fields
    found = None if classic is None else ClassicMember(classic[0], tuple(map(tuple, classic[1])))
    return MemberValue(instance, rack, client_id, client_host, frozenset(topics), regex, timeout, assignor, found)


def _target_fields(value: Partitions) -> tuple[Any, ...]:
    return (value.items(),)


def _current_fields(value: CurrentValue) -> tuple[Any, ...]:
    owned = [
        [(topic, tuple(epochs), tuple(epochs.values())) for topic, epochs in some.items()]
        for some in (value.assigned, value.pending_revocation)
    ]
    return (value.epoch, value.previous_epoch, value.state, *owned)


def _current(fields: Any) -> CurrentValue:
    epoch, previous, state, assigned, pending = fields
    return CurrentValue(epoch, previous, MemberState.of(state), _owned(assigned, epoch), _owned(pending, epoch))


def _owned(topics: Any, default_epoch: int) -> Owned:
    """Kafka before 4.2 wrote no epochs of partitions: they count as assigned at the member's."""
    found = {}
    for topic, partitions, epochs in topics:
        if epochs is None or len(epochs) != len(partitions):
            epochs = (max(default_epoch, 0),) * len(partitions)
        found[topic] = dict(zip(partitions, epochs, strict=True))
    return found


_FIELDS: dict[Kind, Callable[[Any], tuple[Any, ...]]] = {
    Kind.MEMBER: _member_fields,
    Kind.TARGET: _target_fields,
    Kind.CURRENT: _current_fields,
    Kind.REGEX: lambda value: (sorted(value.topics), value.version, value.timestamp_ms),
}
_MEANINGS: dict[Kind, Callable[[Any], Any]] = {
    Kind.EPOCH: lambda fields: EpochValue(*fields),
    Kind.MEMBER: _member,
    Kind.TARGET_EPOCH: lambda fields: TargetEpochValue(*fields),
    Kind.TARGET: lambda fields: dict(fields.topic_partitions),
    Kind.CURRENT: _current,
    Kind.REGEX: lambda fields: ResolvedRegex(frozenset(fields.topics), fields.version, fields.timestamp),
}
