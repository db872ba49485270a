"""Records of consumer, share and streams groups as values (GroupCoordinatorRecordHelpers,
StreamsCoordinatorRecordHelpers). Their bytes: group_record_codec.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any, NamedTuple
from uuid import UUID


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


class Endpoint(NamedTuple):
    """Where the state of a member of a streams group can be queried (application.server)."""

    host: str
    port: int


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


def tasks_by_role(tasks: Partitions | Owned) -> list[list[tuple[str, list[int]]]]:
    """Active, standby and warm-up tasks: (subtopology, partitions), in order."""
    roles: list[list[tuple[str, list[int]]]] = [[] for _ in TaskRole]
    for key in sorted(tasks):
        roles[key.role].append((key.subtopology_id, sorted(tasks[key])))
    return roles


def member_fields(group_type: GroupType, member: Any) -> dict[str, Any]:
    """Return the value of a MEMBER record."""
    return {name: getattr(member, name) for name in MEMBER_FIELDS[group_type]}


def current_assignment_fields(group_type: GroupType, member: Any) -> dict[str, Any]:
    """Return the value of a CURRENT record."""
    return {name: getattr(member, name) for name in CURRENT_FIELDS[group_type]}
