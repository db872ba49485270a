"""Requests to groups and their answers as plain values, the same for every version of the protocol, and what consumers
put into them. Kafka's own defaults stand where a version lacks a field. Times in ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import ProducerIdAndEpoch
from kafkalog_broker.errors import ErrorCode
from kafkalog_spark.format.messages.internal import Message, message

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each assignment strategy a member supports, best first."""

NO_MEMBER = ""  # the member id of who does not have one yet
NO_GENERATION = -1
NO_OFFSET = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class JoinRequest:
    group_id: str
    member_id: str
    client_id: str
    client_host: str  # as Kafka shows it: "/127.0.0.1"
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    group_instance_id: str | None = None
    reason: str = "not provided"
    requires_known_member_id: bool = False
    """v4+: a new dynamic member gets an id first and joins with it in a second request (KIP-394)."""
    supports_skipping_assignment: bool = False
    """v9+: a returning static leader may be asked to keep the assignment that is in place (KIP-814)."""


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """Its fields, as those of SyncAnswer, are named as in the response."""

    error_code: ErrorCode
    member_id: str = NO_MEMBER
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()  # for the leader only, who assigns
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    group_id: str
    member_id: str
    generation: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()  # (member id, assignment), from the leader


class SyncAnswer(NamedTuple):
    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


JoinCallback = Callable[[JoinAnswer], None]
SyncCallback = Callable[[SyncAnswer], None]


@dataclass(frozen=True, slots=True)
class LeavingMember:
    member_id: str
    group_instance_id: str | None = None
    reason: str = "not provided"


@dataclass(frozen=True, slots=True)
class CommittedPartition:
    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str | None = None
    topic_id: UUID | None = None
    commit_timestamp_ms: int = -1  # v1 may name one; -1: when it comes


@dataclass(frozen=True, slots=True)
class CommitRequest:
    group_id: str
    partitions: tuple[CommittedPartition, ...]
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    group_instance_id: str | None = None
    retention_ms: int = -1  # v2-4 may name one; -1: the broker's
    knows_group_id_not_found: bool = True
    """v9+. Before, and in transactions, an unknown group is ILLEGAL_GENERATION. Before, members of
    consumer groups do not commit."""
    producer: ProducerIdAndEpoch | None = None
    """Whose transaction the offsets are part of (TxnOffsetCommit): they count when it commits."""


class ListedGroup(NamedTuple):
    """Its fields are named as in the response."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str = "classic"


# ---- subscriptions and assignments that consumers put into JoinGroup and SyncGroup (ConsumerProtocol). Versions that
# are not known are read, and written, as the newest: what they add stands at their end.

PROTOCOL_TYPE = "consumer"  # the protocol type of groups whose members are consumers (Connect's is "connect")

_SUBSCRIPTION, _ASSIGNMENT = message("ConsumerProtocolSubscription"), message("ConsumerProtocolAssignment")
_NEWEST = 3

NamedPartitions = Mapping[str, Sequence[int]]


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of a subscription of any version (version 0 is the head of all). None where it is none, which is no
    error: other clients may use the protocol type "consumer" too."""
    try:
        return frozenset(_read(_SUBSCRIPTION, metadata, 0).topics)
    except ValueError:
        return None


def parse_subscription(metadata: bytes) -> Any:
    """A ConsumerProtocolSubscription. Raises ValueError for bytes that are none."""
    return _read(_SUBSCRIPTION, metadata)


def parse_assignment(assignment: bytes) -> tuple[NamedPartitions, bytes]:
    """Partitions by name of topic, and user data. Raises ValueError for bytes that are no assignment."""
    partitions, user_data = _read(_ASSIGNMENT, assignment)
    return dict(partitions), user_data or b""


def assignment_of(partitions: NamedPartitions, version: int) -> bytes:
    return _ASSIGNMENT.write[min(version, _NEWEST)]((partitions.items(), None))


def version_of(data: bytes) -> int:
    return int.from_bytes(data[:2], "big", signed=True)


def _read(kind: Message, data: bytes, newest: int = _NEWEST) -> Any:
    version = version_of(data)
    if len(data) < 2 or version < 0:
        raise ValueError(f"{kind.name} of version {version} in {len(data)} bytes")
    return kind.read[min(version, newest)](data, 2)[0]
