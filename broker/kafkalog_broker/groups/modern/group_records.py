"""Records of consumer, share and streams groups in __consumer_offsets, as values and as bytes
(GroupCoordinatorRecordHelpers, StreamsCoordinatorRecordHelpers). A value of None is a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import Record, encoded
from kafkalog_spark.format.messages.internal import decode_key, message
from kafkalog_spark.format.names import OFFSETS_TOPIC


class GroupType(Enum):
    """The value is the name that ListGroups shows."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class RecordKind(Enum):
    """Subject of a record of a group, by the name of its message, and its value."""

    EPOCH = "Metadata"
    """Epoch; hash of the topics' metadata (KIP-1101). Of a streams group also the epoch of the topology whose topics
    are all there (-1: they are not), and (name, value) of what the last assignment was made with; None: nothing."""
    TOPICS = "PartitionMetadata"  # topics' metadata of a consumer group, as Kafka 4.0 wrote it; only removed now
    MEMBER = "MemberMetadata"  # what a member says about itself
    TARGET_EPOCH = "TargetAssignmentMetadata"  # its epoch, and when it was made; 0 ms: not known (Kafka before 4.3)
    TARGET = "TargetAssignmentMember"  # the partitions, or tasks, that a member is to have
    CURRENT = "CurrentMemberAssignment"  # a member's epoch, and the partitions, or tasks, that it has
    REGEX = "RegularExpression"  # the topics that an expression of consumers matches
    STATE_PARTITIONS = "StatePartitionMetadata"  # the share partitions that have state
    TOPOLOGY = "Topology"  # the topology of a streams application


# ---- values


class TaskRole(IntEnum):
    ACTIVE = 0
    STANDBY = 1
    WARMUP = 2


class TasksKey(NamedTuple):
    """The tasks of a subtopology in one role: their numbers are those of the partitions that they read."""

    role: TaskRole
    subtopology_id: str


Partitions = Mapping[Any, tuple[int, ...]]
"""An assignment: partitions by topic id; of streams groups, tasks by TasksKey."""
Owned = Mapping[Any, Mapping[int, int]]
"""As Partitions: topic id -> partition -> the epoch at which it was assigned."""


class MemberState(IntEnum):
    """Progress of a member towards its target assignment (Kafka's MemberState). Members of share groups stay STABLE."""

    STABLE = 0  # it has its target assignment
    UNREVOKED_PARTITIONS = 1  # it has to give up partitions first, and stays in its epoch until it says so
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that others still have
    UNKNOWN = 127  # a state of a later release

    @classmethod
    def of(cls, value: int) -> MemberState:
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN


class ClassicMetadata(NamedTuple):
    """Metadata of a member speaking JoinGroup. session_timeout_ms: its own. protocols: (name, metadata), best first."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched. version: of the broker's topics; timestamp_ms: when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class SharedTopic(NamedTuple):
    name: str
    partitions: tuple[int, ...]


class StatePartitions(NamedTuple):
    """Share partitions whose state is being initialized, is there, or is being deleted (topic id to name)."""

    initializing: Mapping[UUID, SharedTopic]
    initialized: Mapping[UUID, SharedTopic]
    deleting: Mapping[UUID, str]


NO_STATE = StatePartitions({}, {}, {})


class GroupRecord(NamedTuple):
    """A record of a group. name: of the member, or the expression; "" for what is about the group. value: by kind, for
    MEMBER and CURRENT the member's fields by name; None for a tombstone."""

    group_type: GroupType
    kind: RecordKind
    group_id: str
    name: str
    value: Any


# ---- bytes

_OF_ALL = (RecordKind.EPOCH, RecordKind.MEMBER, RecordKind.TARGET_EPOCH, RecordKind.TARGET, RecordKind.CURRENT)
_KINDS = {
    GroupType.CONSUMER: (*_OF_ALL, RecordKind.TOPICS, RecordKind.REGEX),
    GroupType.SHARE: (*_OF_ALL, RecordKind.STATE_PARTITIONS),
    GroupType.STREAMS: (*_OF_ALL, RecordKind.TOPOLOGY),
}
_NAMES = {
    (group_type, kind): f"{group_type.value.capitalize()}Group{kind.value}"
    for group_type, kinds in _KINDS.items()
    for kind in kinds
}
_KEYS = {layout: message(name + "Key") for layout, name in _NAMES.items()}
_BY_KEY = {version: layout for layout, key in _KEYS.items() for version in key.begins}
_VALUES = {layout: message(name + "Value") for layout, name in _NAMES.items() if layout[1] is not RecordKind.TOPICS}
_OF_NAMES = {RecordKind.MEMBER, RecordKind.TARGET, RecordKind.CURRENT, RecordKind.REGEX}
MEMBER_FIELDS = {
    GroupType.CONSUMER: (
        "instance_id", "rack_id", "client_id", "client_host", "topics", "regex", "rebalance_timeout_ms", "assignor",
        "classic",
    ),
    GroupType.SHARE: ("rack_id", "client_id", "client_host", "topics"),
    GroupType.STREAMS: (
        "instance_id", "rack_id", "client_id", "client_host", "rebalance_timeout_ms", "topology_epoch", "process_id",
        "user_endpoint", "client_tags",
    ),
}  # fmt: skip
"""Fields of a member, in the order of the record's."""
CURRENT_FIELDS = {
    GroupType.CONSUMER: ("epoch", "previous_epoch", "state", "assigned", "pending_revocation"),
    GroupType.SHARE: ("epoch", "previous_epoch", "state", "assigned"),
    GroupType.STREAMS: ("epoch", "previous_epoch", "state", "assigned", "pending_revocation"),
}


def encode(record: GroupRecord) -> Record:
    """Raises BrokerError where a text is too long for a key."""
    group_type, kind, group_id, name, value = record
    layout = group_type, kind
    key = encoded(_KEYS[layout], (group_id, name) if kind in _OF_NAMES else (group_id,))
    if value is None:
        return key, None
    to_fields = _TO_FIELDS.get(layout) or _TO_FIELDS.get(kind)
    return key, _VALUES[layout].encode(value if to_fields is None else to_fields(value))


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """The record, None for another kind of key. Raises CorruptLog; UnsupportedFormat for versions after Kafka 4.3."""
    decoded = decode_key(OFFSETS_TOPIC, key)
    if decoded is None or decoded[0] not in _BY_KEY:
        return None
    layout = group_type, kind = _BY_KEY[decoded[0]]
    group_id, name = (*decoded[1], "")[:2]
    if value is None:
        return GroupRecord(group_type, kind, group_id, name, None)
    if kind is RecordKind.TOPICS:  # nobody asks for more than that it is there
        return GroupRecord(group_type, kind, group_id, name, True)
    fields = _VALUES[layout].decode(value, f"{kind.name} record of a {group_type.value} group")
    from_fields = _FROM_FIELDS.get(layout) or _FROM_FIELDS.get(kind)
    found = fields if from_fields is None else from_fields(group_type, fields)
    return GroupRecord(group_type, kind, group_id, name, found)


def _member(group_type: GroupType, fields: Any) -> dict[str, Any]:
    member = dict(zip(MEMBER_FIELDS[group_type], fields, strict=True))
    if "topics" in member:
        member["topics"] = frozenset(member["topics"])
    if (classic := member.get("classic")) is not None:
        member["classic"] = ClassicMetadata(classic[0], tuple(map(tuple, classic[1])))
    return member


def _current_fields(current: Mapping[str, Any]) -> tuple[Any, ...]:
    """Partitions of share groups have no epochs."""
    epoch, previous, state, *assignments = current.values()
    if len(assignments) == 1:
        return epoch, previous, state, assignments[0].items()
    topics = (
        [(topic, tuple(epochs), tuple(epochs.values())) for topic, epochs in owned.items()] for owned in assignments
    )
    return epoch, previous, state, *topics


def _current(group_type: GroupType, fields: Any) -> dict[str, Any]:
    epoch, previous, state, *assignments = fields
    if group_type is GroupType.SHARE:
        assignments = [dict(assignments[0])]
    else:
        assignments = [_owned(topics, epoch) for topics in assignments]
    values = epoch, previous, MemberState.of(state), *assignments
    return dict(zip(CURRENT_FIELDS[group_type], values, strict=True))


def _owned(topics: Any, member_epoch: int) -> Owned:
    """Kafka before 4.2 wrote no epochs of partitions: they count as assigned at the member's."""
    owned = {}
    for topic, partitions, epochs in topics:
        if epochs is None or len(epochs) != len(partitions):
            epochs = (max(member_epoch, 0),) * len(partitions)
        owned[topic] = dict(zip(partitions, epochs, strict=True))
    return owned


def tasks_by_role(tasks: Partitions | Owned) -> list[list[tuple[str, list[int]]]]:
    """Active, standby and warm-up tasks: (subtopology, partitions), in order."""
    roles: list[list[tuple[str, list[int]]]] = [[] for _ in TaskRole]
    for key in sorted(tasks):
        roles[key.role].append((key.subtopology_id, sorted(tasks[key])))
    return roles


def _current_tasks_fields(current: Mapping[str, Any]) -> tuple[Any, ...]:
    """Only active tasks have epochs. States are one more than those of other members."""
    epoch, previous, state, *assignments = current.values()
    lists: list[list[tuple[str, list[int], list[int] | None]]] = []
    for owned in assignments:
        active, standby, warmup = tasks_by_role(owned)
        lists.append([
            (name, parts, [owned[TasksKey(TaskRole.ACTIVE, name)][part] for part in parts]) for name, parts in active
        ])  # fmt: skip
        lists += [[(name, parts, None) for name, parts in some] for some in (standby, warmup)]
    return epoch, previous, min(state + 1, MemberState.UNKNOWN), *lists


def _current_tasks(_: GroupType, fields: Any) -> dict[str, Any]:
    epoch, previous, state, *lists = fields

    def owned(roles: Any) -> Owned:
        keyed = zip(TaskRole, roles, strict=True)
        return _owned(((TasksKey(role, name), *rest) for role, some in keyed for name, *rest in some), epoch)

    values = epoch, previous, MemberState.of(state - 1), owned(lists[:3]), owned(lists[3:])
    return dict(zip(CURRENT_FIELDS[GroupType.STREAMS], values, strict=True))


def _state_fields(state: StatePartitions) -> tuple[Any, ...]:
    with_name = (
        [(topic, *shared) for topic, shared in topics.items()] for topics in (state.initializing, state.initialized)
    )
    return (*with_name, state.deleting.items())


def _state(_: GroupType, fields: Any) -> StatePartitions:
    def shared(topics: Iterable[Any]) -> dict[UUID, SharedTopic]:
        return {topic: SharedTopic(name, partitions) for topic, name, partitions in topics}

    return StatePartitions(shared(fields[0]), shared(fields[1]), dict(fields[2]))


_TO_FIELDS: dict[RecordKind | tuple[GroupType, RecordKind], Callable[[Any], tuple[Any, ...]]] = {
    RecordKind.MEMBER: lambda member: tuple(sorted(v) if isinstance(v, frozenset) else v for v in member.values()),
    RecordKind.TARGET: lambda partitions: (partitions.items(),),
    RecordKind.CURRENT: _current_fields,
    RecordKind.REGEX: lambda regex: (sorted(regex.topics), regex.version, regex.timestamp_ms),
    RecordKind.STATE_PARTITIONS: _state_fields,
    (GroupType.STREAMS, RecordKind.TARGET): lambda tasks: tuple(tasks_by_role(tasks)),
    (GroupType.STREAMS, RecordKind.CURRENT): _current_tasks_fields,
    RecordKind.TOPOLOGY: lambda topology: (topology.epoch, topology.subtopologies),
}
"""By kind, unless a type of group has its own. What is not in here is its message's fields as it is."""
_FROM_FIELDS: dict[RecordKind | tuple[GroupType, RecordKind], Callable[[GroupType, Any], Any]] = {
    RecordKind.MEMBER: _member,
    RecordKind.TARGET: lambda _, fields: dict(fields.topic_partitions),
    RecordKind.CURRENT: _current,
    RecordKind.REGEX: lambda _, fields: ResolvedRegex(frozenset(fields.topics), fields.version, fields.timestamp),
    RecordKind.STATE_PARTITIONS: _state,
    (GroupType.STREAMS, RecordKind.TARGET): lambda _, fields: {
        TasksKey(role, name): partitions
        for role, some in zip(TaskRole, fields, strict=True)
        for name, partitions in some
    },
    (GroupType.STREAMS, RecordKind.CURRENT): _current_tasks,
}
