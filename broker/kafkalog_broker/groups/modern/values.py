"""What a consumer group consists of: members, assignments and epochs, as values that are replaced and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

LEAVING = -1
"""The member epoch of who leaves for good."""
LEAVING_STATIC = -2
"""The member epoch of a static member that will be back."""

Partitions = Mapping[UUID, tuple[int, ...]]
"""Partitions by topic id: an assignment. The order of partitions is that of the record."""
Owned = Mapping[UUID, Mapping[int, int]]
"""topic id -> partition -> the epoch at which it was assigned."""


class MemberState(IntEnum):
    """How far a member is on its way to the target assignment (Kafka's MemberState)."""

    STABLE = 0
    """It has its target assignment."""
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions first, and stays in its epoch until it says so."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others still have."""
    UNKNOWN = 127
    """A state of a later release."""

    @classmethod
    def of(cls, value: int) -> MemberState:
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """What is known of a member that still speaks JoinGroup. session_timeout_ms: its own. protocols: (name, metadata),
    best first."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member. `classic`: None for one that speaks
    the consumer protocol. Times in ms."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    assignor: str | None = None
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)
    classic: ClassicMember | None = None

    def at_epoch(self, epoch: int, state: MemberState, assigned: Owned, pending: Owned) -> ConsumerMember:
        """On to the next epoch, or the same again."""
        return replace(
            self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, pending_revocation=pending
        )

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def epoch_of(self, topic_id: UUID, partition: int) -> int | None:
        """The epoch at which a partition was assigned to it, also one that it is to give up; None: it is not its."""
        found = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if found is None else found


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched. version: of the broker's topics; timestamp_ms: when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class TopicInfo(NamedTuple):
    """A topic as assignments see it."""

    name: str
    topic_id: UUID
    partitions: int
