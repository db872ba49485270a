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

A value of None is a tombstone. Layouts: ConsumerGroupMetadataKey.json and its neighbours in Kafka's group-coordinator;
values are of version 0, which is flexible, keys are not.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import Record
from kafkalog_broker.groups.classic.offset_records import key_string
from kafkalog_broker.groups.consumer.consumer_group import ClassicMember, MemberState, Owned, Partitions, ResolvedRegex
from kafkalog_broker.protocol.frames import compact_string, uvarint
from kafkalog_spark.errors import UnsupportedFormat
from kafkalog_spark.format.internal_records import MessageReader

_I16, _I32, _I64, _I8 = (struct.Struct(form) for form in (">h", ">i", ">q", ">b"))
_VERSION = _I16.pack(0)
_NO_TAGS = b"\0"


_NOBODY = ClassicMember(0, ())
"""Kafka's generated code leaves the tagged field out where it says this, and writes it where it is null."""


class Kind(IntEnum):
    """The version of a key, which says what it is a key of (CoordinatorRecordType)."""

    EPOCH = 3
    TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


_NAMED = {Kind.MEMBER, Kind.TARGET, Kind.CURRENT, Kind.REGEX}


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
    key = _I16.pack(change.kind) + key_string(change.group_id)
    if change.kind in _NAMED:
        key += key_string(change.name)
    if change.value is None:
        return key, None
    return key, _VERSION + _ENCODERS[change.kind](change.value)


def decode(key: bytes, value: bytes | None) -> Change | None:
    """None for the key of something else. Raises CorruptLog, and UnsupportedFormat for a version that is newer than
    Kafka 4.3's."""
    reader = MessageReader(key, "key of __consumer_offsets")
    version = reader.int16()
    if version not in Kind._value2member_map_:
        return None
    kind = Kind(version)
    group_id = reader.string()
    name = reader.string() if kind in _NAMED else ""
    if value is None:
        return Change(kind, group_id, name, None)
    content = MessageReader(value, f"{kind.name} record of a consumer group")
    newest = content.int16()
    if newest != 0:
        raise UnsupportedFormat(f"the {kind.name} record of group {group_id!r} has version {newest}, expected 0")
    content.flexible = True
    return Change(kind, group_id, name, _DECODERS[kind](content))


# ---- values


def _tagged(*fields: tuple[int, bytes]) -> bytes:
    return uvarint(len(fields)) + b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in fields)


def _array(items: list[bytes]) -> bytes:
    return uvarint(len(items) + 1) + b"".join(items)


def _encode_epoch(value: EpochValue) -> bytes:
    tags = _tagged((0, _I64.pack(value.metadata_hash))) if value.metadata_hash else _NO_TAGS
    return _I32.pack(value.epoch) + tags


def _decode_epoch(reader: MessageReader) -> EpochValue:
    epoch = reader.int32()
    data = reader.tagged_fields().get(0)
    return EpochValue(epoch, _I64.unpack(data)[0] if data is not None and len(data) == 8 else 0)


def _encode_target_epoch(value: TargetEpochValue) -> bytes:
    tags = _tagged((0, _I64.pack(value.timestamp_ms))) if value.timestamp_ms else _NO_TAGS
    return _I32.pack(value.epoch) + tags


def _decode_target_epoch(reader: MessageReader) -> TargetEpochValue:
    return TargetEpochValue(*_decode_epoch(reader))


def _encode_member(value: MemberValue) -> bytes:
    return b"".join(
        (
            compact_string(value.instance_id),
            compact_string(value.rack_id),
            compact_string(value.client_id),
            compact_string(value.client_host),
            _array([compact_string(topic) for topic in sorted(value.topics)]),
            compact_string(value.regex),
            _I32.pack(value.rebalance_timeout_ms),
            compact_string(value.assignor),
            _NO_TAGS if value.classic == _NOBODY else _tagged((0, _encode_classic(value.classic))),
        )
    )


def _encode_classic(value: ClassicMember | None) -> bytes:
    """A struct that may be null: 0, or 1 and its fields."""
    if value is None:
        return b"\0"
    protocols = [
        compact_string(name) + uvarint(len(metadata) + 1) + metadata + _NO_TAGS for name, metadata in value.protocols
    ]
    return b"\1" + _I32.pack(value.session_timeout_ms) + _array(protocols) + _NO_TAGS


def _decode_member(reader: MessageReader) -> MemberValue:
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    topics = frozenset(reader.string() for _ in range(reader.array_length()))
    regex, timeout, assignor = reader.nullable_string(), reader.int32(), reader.nullable_string()
    classic = reader.tagged_fields().get(0)
    return MemberValue(
        instance_id, rack_id, client_id, client_host, topics, regex, timeout, assignor,
        _NOBODY if classic is None else _decode_classic(classic),
    )  # fmt: skip


def _decode_classic(data: bytes) -> ClassicMember | None:
    reader = MessageReader(data, "classic metadata of a member")
    reader.flexible = True
    if reader.int8() == 0:
        return None
    timeout = reader.int32()
    protocols = []
    for _ in range(reader.array_length()):
        protocols.append((reader.string(), reader.blob()))
        reader.tagged_fields()
    return ClassicMember(timeout, tuple(protocols))


def _encode_target(value: Partitions) -> bytes:
    return _array([topic.bytes + _numbers(partitions) + _NO_TAGS for topic, partitions in value.items()]) + _NO_TAGS


def _numbers(values: tuple[int, ...]) -> bytes:
    return uvarint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def _decode_numbers(reader: MessageReader) -> tuple[int, ...]:
    count = reader.array_length()
    return struct.unpack(f">{count}i", reader.take(4 * count))


def _decode_target(reader: MessageReader) -> Partitions:
    found: dict[UUID, tuple[int, ...]] = {}
    for _ in range(reader.array_length()):
        topic = UUID(bytes=reader.take(16))
        found[topic] = _decode_numbers(reader)
        reader.tagged_fields()
    reader.tagged_fields()
    return found


def _encode_current(value: CurrentValue) -> bytes:
    head = _I32.pack(value.epoch) + _I32.pack(value.previous_epoch) + _I8.pack(value.state)
    return head + _encode_owned(value.assigned) + _encode_owned(value.pending_revocation) + _NO_TAGS


def _encode_owned(owned: Owned) -> bytes:
    return _array(
        [
            topic.bytes + _numbers(tuple(epochs)) + _tagged((0, _numbers(tuple(epochs.values()))))
            for topic, epochs in owned.items()
        ]
    )


def _decode_current(reader: MessageReader) -> CurrentValue:
    epoch, previous, state = reader.int32(), reader.int32(), MemberState.of(reader.int8())
    assigned, pending = _decode_owned(reader, epoch), _decode_owned(reader, epoch)
    reader.tagged_fields()
    return CurrentValue(epoch, previous, state, assigned, pending)


def _decode_owned(reader: MessageReader, default_epoch: int) -> Owned:
    """Kafka before 4.2 wrote no epochs of partitions: they count as assigned at the member's."""
    found: dict[UUID, Mapping[int, int]] = {}
    for _ in range(reader.array_length()):
        topic, partitions = UUID(bytes=reader.take(16)), _decode_numbers(reader)
        data = reader.tagged_fields().get(0)
        epochs: tuple[int, ...] = ()
        if data is not None:
            tagged = MessageReader(data, "epochs of partitions")
            tagged.flexible = True
            epochs = _decode_numbers(tagged) if data[:1] != b"\0" else ()  # 0: null
        if len(epochs) != len(partitions):
            epochs = (max(default_epoch, 0),) * len(partitions)
        found[topic] = dict(zip(partitions, epochs, strict=True))
    return found


def _encode_regex(value: ResolvedRegex) -> bytes:
    topics = _array([compact_string(topic) for topic in sorted(value.topics)])
    return topics + _I64.pack(value.version) + _I64.pack(value.timestamp_ms) + _NO_TAGS


def _decode_regex(reader: MessageReader) -> ResolvedRegex:
    topics = frozenset(reader.string() for _ in range(reader.array_length()))
    resolved = ResolvedRegex(topics, reader.int64(), reader.int64())
    reader.tagged_fields()
    return resolved


_ENCODERS: dict[Kind, Any] = {
    Kind.EPOCH: _encode_epoch,
    Kind.MEMBER: _encode_member,
    Kind.TARGET_EPOCH: _encode_target_epoch,
    Kind.TARGET: _encode_target,
    Kind.CURRENT: _encode_current,
    Kind.REGEX: _encode_regex,
}
_DECODERS: dict[Kind, Any] = {
    Kind.EPOCH: _decode_epoch,
    Kind.TOPICS: lambda reader: True,
    Kind.MEMBER: _decode_member,
    Kind.TARGET_EPOCH: _decode_target_epoch,
    Kind.TARGET: _decode_target,
    Kind.CURRENT: _decode_current,
    Kind.REGEX: _decode_regex,
}
