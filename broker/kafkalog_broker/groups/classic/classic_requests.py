"""Requests and responses of JoinGroup, SyncGroup and LeaveGroup as plain values, the same for every version.

Fields that a version does not have get Kafka's defaults. Times are in ms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_broker.errors import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol (assignment strategy) that a member supports, preferred first."""

NO_MEMBER = ""  # member ID of a member that has none yet
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class JoinRequest:
    group_id: str
    member_id: str
    client_id: str
    client_host: str  # "/127.0.0.1"
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    group_instance_id: str | None = None
    reason: str = "not provided"
    requires_known_member_id: bool = False
    """Since v4: a new dynamic member first receives its member ID, and joins with it in a second request (KIP-394)."""
    supports_skipping_assignment: bool = False
    """Since v9: the response to a static leader that joins again may tell it to keep the assignment (KIP-814)."""


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResponse(NamedTuple):
    """Response to JoinGroup, with the names of its fields. `members` is set for the leader only."""

    error_code: ErrorCode
    member_id: str = NO_MEMBER
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    group_id: str
    member_id: str
    generation: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()  # (member ID, assignment), from the leader


class SyncResponse(NamedTuple):
    """Response to SyncGroup, with the names of its fields."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


JoinCallback = Callable[[JoinResponse], None]
SyncCallback = Callable[[SyncResponse], None]


@dataclass(frozen=True, slots=True)
class LeavingMember:
    member_id: str
    group_instance_id: str | None = None
    reason: str = "not provided"
