"""Requests to groups and their answers as plain values, the same for every version of the protocol.

Kafka's own defaults stand where a version lacks a field. Times in ms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from kafkalog_broker.errors import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each assignment strategy a member supports, best first."""

NO_MEMBER = ""
"""The member id of who does not have one yet."""
NO_GENERATION = -1
NO_OFFSET = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class JoinRequest:
    group_id: str
    member_id: str
    client_id: str
    client_host: str
    """As Kafka shows it: "/127.0.0.1"."""
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


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    error: ErrorCode
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    """For the leader only, who assigns."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    group_id: str
    member_id: str
    generation: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()
    """(member id, assignment), from the leader."""


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
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
    """An offset of an OffsetCommit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str | None = None
    topic_id: UUID | None = None
    commit_timestamp_ms: int = -1
    """v1 may name one; -1: when it comes."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    group_id: str
    partitions: tuple[CommittedPartition, ...]
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    group_instance_id: str | None = None
    retention_ms: int = -1
    """v2-4 may name one; -1: the broker's."""
    knows_group_id_not_found: bool = True
    """v9+. Before, an unknown group is ILLEGAL_GENERATION, and members of consumer groups do not commit."""


@dataclass(frozen=True, slots=True)
class TransactionalCommit:
    """A TxnOffsetCommit of a producer whose transaction holds the group's partition of __consumer_offsets."""

    group_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[CommittedPartition, ...]
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    group_instance_id: str | None = None
    retention_ms: ClassVar[int] = -1
    """As of a commit that names none."""


@dataclass(frozen=True, slots=True)
class FetchedTopic:
    """Offsets wanted of a topic. `topic_id`: the id that the topic has now, None when it does not exist."""

    topic: str
    partitions: tuple[int, ...]
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: str
    state_filter: str
    """The state as filters have it, in small letters."""
    type: str = "classic"


@dataclass(frozen=True, slots=True)
class DescribedMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
    error: ErrorCode = ErrorCode.none
    error_message: str | None = None
