"""A share group and its members, as the records of __consumer_offsets say (Kafka's ShareGroup, ShareGroupMember)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from kafkalog_broker.coordinators.record_batches import Record
from kafkalog_broker.share.membership import group_records as records
from kafkalog_broker.share.membership.group_records import (
    CurrentAssignment,
    MemberMetadata,
    ShareKey,
    StatePartitions,
    tombstone,
)
from kafkalog_broker.share.membership.simple_assignor import Assignment

EMPTY, STABLE = "Empty", "Stable"
"""ShareGroupState: a group has members, or none."""
FIRST_EPOCH = 1
GONE_EPOCH = -1
UNKNOWN_MEMBER = CurrentAssignment(0, 0, {})
NO_METADATA = MemberMetadata(None, "", "", ())


@dataclass(slots=True)
class Member:
    metadata: MemberMetadata = NO_METADATA
    current: CurrentAssignment = UNKNOWN_MEMBER


@dataclass(slots=True)
class ShareGroup:
    """epochs: of the group, and of its target assignment. Times in ms."""

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = FIRST_EPOCH
    assigned_at: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    state: StatePartitions | None = None
    initializing_since: dict[UUID, int] = field(default_factory=dict)
    topics_seen: tuple[tuple[str, UUID, int], ...] | None = None
    """The topics it subscribes to, when they were last looked at; None: not since it was loaded."""

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

    def topics(self, but: str | None = None, and_of: Iterable[str] = ()) -> dict[str, int]:
        """Names of subscribed topics, and by how many members. but: without this member, whose subscription is
        `and_of`."""
        counts: dict[str, int] = {}
        for member_id, member in self.members.items():
            if member_id != but:
                for name in member.metadata.topics:
                    counts[name] = counts.get(name, 0) + 1
        for name in and_of:
            counts[name] = counts.get(name, 0) + 1
        return counts

    def replay(self, key: ShareKey, value: bytes | None, now_ms: int) -> None:
        """Take over a record. Raises CorruptLog, UnsupportedFormat."""
        match key.kind:
            case records.MEMBER if value is None:
                self.members.pop(key.member_id, None)
            case records.MEMBER:
                self._member(key).metadata = records.decode_member(value or b"")
            case records.GROUP if value is not None:
                self.epoch, self.metadata_hash = records.decode_group(value)
            case records.TARGET_EPOCH:
                self.assignment_epoch, self.assigned_at = (
                    (GONE_EPOCH, 0) if value is None else records.decode_target_epoch(value)
                )
            case records.TARGET if value is None:
                self.target.pop(key.member_id, None)
            case records.TARGET:
                self.target[key.member_id] = records.decode_target(value or b"")
            case records.CURRENT if value is None:
                if key.member_id in self.members:
                    self.members[key.member_id].current = UNKNOWN_MEMBER
            case records.CURRENT:
                self._member(key).current = records.decode_current(value or b"")
            case records.STATE_PARTITIONS:
                self.state = None if value is None else records.decode_state_partitions(value)
                initializing = () if self.state is None else self.state.initializing
                self.initializing_since = dict.fromkeys(initializing, now_ms)

    def _member(self, key: ShareKey) -> Member:
        return self.members.setdefault(key.member_id, Member())

    def tombstones(self) -> list[Record]:
        """What makes the group be forgotten."""
        group = self.group_id
        return [
            *(tombstone(records.CURRENT, group, member) for member in self.members),
            *(tombstone(records.TARGET, group, member) for member in self.members),
            tombstone(records.TARGET_EPOCH, group),
            *(tombstone(records.MEMBER, group, member) for member in self.members),
            tombstone(records.STATE_PARTITIONS, group),
            tombstone(records.GROUP, group),
        ]
