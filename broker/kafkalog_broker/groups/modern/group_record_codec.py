"""Encoding and decoding of the records of consumer, share and streams groups in __consumer_offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_record import Record, encode_message
from kafkalog_broker.groups.modern.group_records import (
    CURRENT_FIELDS,
    MEMBER_FIELDS,
    ClassicMetadata,
    Endpoint,
    GroupRecord,
    GroupType,
    MemberState,
    Owned,
    RecordKind,
    ResolvedRegex,
    SharedTopic,
    StatePartitions,
    TaskRole,
    TasksKey,
    tasks_by_role,
)
from kafkalog_spark.format.messages.internal import decode_key, message
from kafkalog_spark.format.names import OFFSETS_TOPIC

_COMMON_KINDS = (RecordKind.EPOCH, RecordKind.MEMBER, RecordKind.TARGET_EPOCH, RecordKind.TARGET, RecordKind.CURRENT)
_KINDS = {
    GroupType.CONSUMER: (*_COMMON_KINDS, RecordKind.TOPICS, RecordKind.REGEX),
    GroupType.SHARE: (*_COMMON_KINDS, RecordKind.STATE_PARTITIONS),
    GroupType.STREAMS: (*_COMMON_KINDS, RecordKind.TOPOLOGY),
}
_MESSAGE_NAMES = {
    (group_type, kind): f"{group_type.value.capitalize()}Group{kind.value}"
    for group_type, kinds in _KINDS.items()
    for kind in kinds
}
_KEYS = {type_and_kind: message(name + "Key") for type_and_kind, name in _MESSAGE_NAMES.items()}
_BY_KEY_VERSION = {version: type_and_kind for type_and_kind, key in _KEYS.items() for version in key.version_by_prefix}
_VALUES = {
    type_and_kind: message(name + "Value")
    for type_and_kind, name in _MESSAGE_NAMES.items()
    if type_and_kind[1] is not RecordKind.TOPICS
}
_KINDS_WITH_NAME = {RecordKind.MEMBER, RecordKind.TARGET, RecordKind.CURRENT, RecordKind.REGEX}


def encode(record: GroupRecord) -> Record:
    """Encode a record.

    Raises:
        BrokerError: unknown_server_error if a text is too long for a key.
    """
    group_type, kind, group_id, name, value = record
    type_and_kind = group_type, kind
    key = encode_message(_KEYS[type_and_kind], (group_id, name) if kind in _KINDS_WITH_NAME else (group_id,))
    if value is None:
        return key, None
    to_fields = _TO_FIELDS.get(type_and_kind) or _TO_FIELDS.get(kind)
    return key, _VALUES[type_and_kind].encode(value if to_fields is None else to_fields(value))


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Decode a record.

    Returns:
        None for keys of offsets, classic groups and unknown types of groups.

    Raises:
        CorruptLog: If the bytes are malformed.
        UnsupportedFormat: If the version is newer than in Kafka 4.3.
    """
    decoded = decode_key(OFFSETS_TOPIC, key)
    if decoded is None or decoded[0] not in _BY_KEY_VERSION:
        return None
    key_version, key_fields = decoded
    type_and_kind = _BY_KEY_VERSION[key_version]
    group_type, kind = type_and_kind
    group_id = key_fields[0]
    name = key_fields[1] if kind in _KINDS_WITH_NAME else ""
    if value is None:
        return GroupRecord(group_type, kind, group_id, name, None)
    if kind is RecordKind.TOPICS:  # only its existence matters
        return GroupRecord(group_type, kind, group_id, name, True)
    fields = _VALUES[type_and_kind].decode(value, f"{kind.name} record of a {group_type.value} group")
    from_fields = _FROM_FIELDS.get(type_and_kind) or _FROM_FIELDS.get(kind)
    decoded_value = fields if from_fields is None else from_fields(group_type, fields)
    return GroupRecord(group_type, kind, group_id, name, decoded_value)


def _member_fields(member: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a member's attributes; the topics, a set, are sorted."""
    return tuple(sorted(value) if isinstance(value, frozenset) else value for value in member.values())


def _member_from_fields(group_type: GroupType, fields: Any) -> dict[str, Any]:
    member = dict(zip(MEMBER_FIELDS[group_type], fields, strict=True))
    if "topics" in member:
        member["topics"] = frozenset(member["topics"])
    if (classic := member.get("classic")) is not None:
        member["classic"] = ClassicMetadata(classic[0], tuple(map(tuple, classic[1])))
    if (endpoint := member.get("user_endpoint")) is not None:
        member["user_endpoint"] = Endpoint(*endpoint)
    return member


def _current_assignment_fields(current: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the fields of a current assignment. That of a share group has no epochs and no pending revocation."""
    epoch, previous, state, *assignments = current.values()
    if len(assignments) == 1:
        return epoch, previous, state, assignments[0].items()
    topics = (
        [(topic, tuple(epochs), tuple(epochs.values())) for topic, epochs in owned.items()] for owned in assignments
    )
    return epoch, previous, state, *topics


def _current_assignment_from_fields(group_type: GroupType, fields: Any) -> dict[str, Any]:
    epoch, previous, state, *assignments = fields
    if group_type is GroupType.SHARE:
        assignments = [dict(assignments[0])]
    else:
        assignments = [_owned(topics, epoch) for topics in assignments]
    values = epoch, previous, MemberState.of(state), *assignments
    return dict(zip(CURRENT_FIELDS[group_type], values, strict=True))


def _owned(topics: Any, member_epoch: int) -> Owned:
    """Return the epoch of each owned partition. Without assignment epochs (Kafka before 4.2) it is the member epoch."""
    owned = {}
    for topic, partitions, epochs in topics:
        if epochs is None or len(epochs) != len(partitions):
            epochs = (max(member_epoch, 0),) * len(partitions)
        owned[topic] = dict(zip(partitions, epochs, strict=True))
    return owned


def _current_tasks_fields(current: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the fields of a current assignment of tasks. Only active tasks have assignment epochs, and the number of a
    state is one more than in other types of groups."""
    epoch, previous, state, *assignments = current.values()
    fields: list[list[tuple[str, list[int], list[int] | None]]] = []  # one list for each role of each assignment
    for owned in assignments:
        active, standby, warmup = tasks_by_role(owned)
        active_fields: list[tuple[str, list[int], list[int] | None]] = []
        for subtopology_id, partitions in active:
            epochs = owned[TasksKey(TaskRole.ACTIVE, subtopology_id)]
            active_fields.append((subtopology_id, partitions, [epochs[partition] for partition in partitions]))
        fields.append(active_fields)
        for tasks in (standby, warmup):
            fields.append([(subtopology_id, partitions, None) for subtopology_id, partitions in tasks])
    return epoch, previous, min(state + 1, MemberState.UNKNOWN), *fields


def _current_tasks_from_fields(_: GroupType, fields: Any) -> dict[str, Any]:
    epoch, previous, state, *assignments = fields

    def owned_tasks(tasks_of_roles: Any) -> Owned:
        tasks_with_epochs = (
            (TasksKey(role, subtopology_id), partitions, epochs)
            for role, tasks in zip(TaskRole, tasks_of_roles, strict=True)
            for subtopology_id, partitions, epochs in tasks
        )
        return _owned(tasks_with_epochs, epoch)

    assigned, pending_revocation = owned_tasks(assignments[:3]), owned_tasks(assignments[3:])
    values = epoch, previous, MemberState.of(state - 1), assigned, pending_revocation
    return dict(zip(CURRENT_FIELDS[GroupType.STREAMS], values, strict=True))


def _state_partitions_fields(state: StatePartitions) -> tuple[Any, ...]:
    def topic_fields(topics: Mapping[UUID, SharedTopic]) -> list[tuple[UUID, str, tuple[int, ...]]]:
        return [(topic_id, shared.name, shared.partitions) for topic_id, shared in topics.items()]

    return topic_fields(state.initializing), topic_fields(state.initialized), state.deleting.items()


def _state_partitions_from_fields(_: GroupType, fields: Any) -> StatePartitions:
    def shared_topics(topics: Iterable[Any]) -> dict[UUID, SharedTopic]:
        return {topic_id: SharedTopic(name, partitions) for topic_id, name, partitions in topics}

    initializing, initialized, deleting = fields
    return StatePartitions(shared_topics(initializing), shared_topics(initialized), dict(deleting))


_TO_FIELDS: dict[RecordKind | tuple[GroupType, RecordKind], Callable[[Any], tuple[Any, ...]]] = {
    RecordKind.MEMBER: _member_fields,
    RecordKind.TARGET: lambda partitions: (partitions.items(),),
    RecordKind.CURRENT: _current_assignment_fields,
    RecordKind.REGEX: lambda regex: (sorted(regex.topics), regex.version, regex.timestamp_ms),
    RecordKind.STATE_PARTITIONS: _state_partitions_fields,
    (GroupType.STREAMS, RecordKind.TARGET): lambda tasks: tuple(tasks_by_role(tasks)),
    (GroupType.STREAMS, RecordKind.CURRENT): _current_tasks_fields,
    RecordKind.TOPOLOGY: lambda topology: (topology.epoch, topology.subtopologies),
}
"""Functions that convert the value of a record to the fields of its message, by kind of record, or by type of group and
kind. Without an entry, the value is already the tuple of the fields."""
_FROM_FIELDS: dict[RecordKind | tuple[GroupType, RecordKind], Callable[[GroupType, Any], Any]] = {
    RecordKind.MEMBER: _member_from_fields,
    RecordKind.TARGET: lambda _, fields: dict(fields.topic_partitions),
    RecordKind.CURRENT: _current_assignment_from_fields,
    RecordKind.REGEX: lambda _, fields: ResolvedRegex(frozenset(fields.topics), fields.version, fields.timestamp),
    RecordKind.STATE_PARTITIONS: _state_partitions_from_fields,
    (GroupType.STREAMS, RecordKind.TARGET): lambda _, fields: {
        TasksKey(role, name): partitions
        for role, tasks in zip(TaskRole, fields, strict=True)
        for name, partitions in tasks
    },
    (GroupType.STREAMS, RecordKind.CURRENT): _current_tasks_from_fields,
}
"""Functions that convert the fields of a message to the value of a record, with keys as in `_TO_FIELDS`."""
