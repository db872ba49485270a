"""Records of consumer, share and streams groups as values (GroupCoordinatorRecordHelpers,
StreamsCoordinatorRecordHelpers). `group_record_codec` encodes and decodes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any, NamedTuple
from uuid import UUID


class GroupType(Enum):
    """Type of a group. The value is the name in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class RecordKind(Enum):
    """Kind of a record. The value is the name of its message, without the type of the group and "Key" or "Value"."""

    EPOCH = "Metadata"
    """Group epoch and metadata hash (KIP-1101). For a streams group also the epoch of the validated topology, -1 if its
    topics do not all exist, and the configurations of the last target assignment as (name, value), None if unknown."""
    TOPICS = "PartitionMetadata"
    """Metadata of the topics of a consumer group, as Kafka 4.0 wrote it. Never written here, only removed."""
    MEMBER = "MemberMetadata"  # attributes that a member reports, such as its subscription
    TARGET_EPOCH = "TargetAssignmentMetadata"
    """Epoch of the target assignment, and the time in ms when it was computed, 0 if unknown (Kafka before 4.3)."""
    TARGET = "TargetAssignmentMember"  # target assignment of a member
    CURRENT = "CurrentMemberAssignment"  # epoch and current assignment of a member
    REGEX = "RegularExpression"  # topics that a regular expression of consumers matches
    STATE_PARTITIONS = "StatePartitionMetadata"  # share partitions that have state
    TOPOLOGY = "Topology"  # topology of a streams application


class TaskRole(IntEnum):
    ACTIVE = 0
    STANDBY = 1
    WARMUP = 2


class TasksKey(NamedTuple):
    """Key of the tasks of a subtopology in one role. A task has the number of the partitions that it reads."""

    role: TaskRole
    subtopology_id: str


Partitions = Mapping[Any, tuple[int, ...]]
"""An assignment: partitions by topic ID, or tasks by TasksKey in streams groups."""
Owned = Mapping[Any, Mapping[int, int]]
"""Like `Partitions`, with the epoch in which each partition or task was assigned."""


class MemberState(IntEnum):
    """State of a member (Kafka's MemberState). Members of share groups are always STABLE."""

    STABLE = 0  # the member has its target assignment
    UNREVOKED_PARTITIONS = 1  # it has to revoke partitions, and stays in its epoch until then
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that other members have not revoked yet
    UNKNOWN = 127  # the record has a state of a later release

    @classmethod
    def of(cls, value: int) -> MemberState:
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN


class Endpoint(NamedTuple):
    """Address at which the state of a member of a streams group can be queried (application.server)."""

    host: str
    port: int


class ClassicMetadata(NamedTuple):
    """Fields of the JoinGroup request of a classic member. `protocols` are (name, metadata), preferred first."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ResolvedRegex(NamedTuple):
    """Topics that a regular expression matched, with the generation (`version`) of the broker's topics at that time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class SharedTopic(NamedTuple):
    """Share partitions of one topic."""

    name: str
    partitions: tuple[int, ...]


class StatePartitions(NamedTuple):
    """Share partitions whose state is being initialized, is initialized, or is being deleted (topic ID to name)."""

    initializing: Mapping[UUID, SharedTopic]
    initialized: Mapping[UUID, SharedTopic]
    deleting: Mapping[UUID, str]


NO_STATE = StatePartitions({}, {}, {})


class GroupRecord(NamedTuple):
    """A record of a group.

    Attributes:
        name: Member ID, or regular expression; "" for records about the whole group.
        value: Depends on the kind: for MEMBER and CURRENT, fields of the member by name. None for a tombstone.
    """

    group_type: GroupType
    kind: RecordKind
    group_id: str
    name: str
    value: Any


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
"""Attributes of a member in its MEMBER record, in the order of the record's fields."""
CURRENT_FIELDS = {
    GroupType.CONSUMER: ("epoch", "previous_epoch", "state", "assigned", "pending_revocation"),
    GroupType.SHARE: ("epoch", "previous_epoch", "state", "assigned"),
    GroupType.STREAMS: ("epoch", "previous_epoch", "state", "assigned", "pending_revocation"),
}
"""Attributes of a member in its CURRENT record, in the order of the record's fields."""


class Tasks(NamedTuple):
    """Tasks of one subtopology, with the fields in the order of the record."""

    subtopology_id: str
    partitions: list[int]


def tasks_by_role(tasks: Partitions | Owned) -> list[list[Tasks]]:
    """Return active, standby and warm-up tasks, each in the order of subtopology IDs."""
    roles: list[list[Tasks]] = [[] for _ in TaskRole]
    for key in sorted(tasks):
        roles[key.role].append(Tasks(key.subtopology_id, sorted(tasks[key])))
    return roles


def member_fields(group_type: GroupType, member: Any) -> dict[str, Any]:
    """Return the value of a MEMBER record."""
    return {name: getattr(member, name) for name in MEMBER_FIELDS[group_type]}


def current_assignment_fields(group_type: GroupType, member: Any) -> dict[str, Any]:
    """Return the value of a CURRENT record."""
    return {name: getattr(member, name) for name in CURRENT_FIELDS[group_type]}
