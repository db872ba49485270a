"""A share group and its members, as the records of __consumer_offsets say (Kafka's ShareGroup, ShareGroupMember)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
_OF_ASSIGNMENT = frozenset({records.MEMBER, records.TARGET, records.STATE_PARTITIONS})


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
    _subscribers: dict[str, int] = field(default_factory=dict, init=False)
    """By how many members each topic is subscribed to."""
    _all_assigned: bool | None = field(default=None, init=False, compare=False)
    """What `all_assigned` has found, until something of it changes."""

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

    def topics(self, but: str | None = None, and_of: Iterable[str] = ()) -> Collection[str]:
        """Names of subscribed topics. but: without this member, whose subscription is `and_of`. What is returned shows
        what changes later. Counted as members come, change and go: each heartbeat asks."""
        mine = self.members[but].metadata.topics if but in self.members else ()
        if tuple(and_of) == mine:
            return self._subscribers.keys()
        left = set(mine)
        found = dict.fromkeys(name for name, count in self._subscribers.items() if count > (name in left))
        return dict.fromkeys((*found, *and_of)).keys()

    def all_assigned(self) -> bool:
        """Whether all share partitions that have a state, of subscribed topics, are somebody's in the target. Gone
        through once after each change, as each heartbeat asks."""
        if self._all_assigned is None:
            assigned: dict[UUID, set[int]] = {}
            for target in self.target.values():
                for topic, indexes in target.items():
                    assigned.setdefault(topic, set()).update(indexes)
            initialized = {} if self.state is None else self.state.initialized
            self._all_assigned = all(
                info.name not in self._subscribers or assigned.get(topic) == set(info.partitions)
                for topic, info in initialized.items()
            )
        return self._all_assigned

    def replay(self, key: ShareKey, value: bytes | None, now_ms: int) -> None:
        """Take over a record. Raises CorruptLog, UnsupportedFormat."""
        if key.kind in _OF_ASSIGNMENT:
            self._all_assigned = None
        match key.kind:
            case records.MEMBER if value is None:
                gone = self.members.pop(key.member_id, None)
                self._count((), NO_METADATA if gone is None else gone.metadata)
            case records.MEMBER:
                metadata = records.decode_member(value or b"")
                member = self._member(key)
                self._count(metadata.topics, member.metadata)
                member.metadata = metadata
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

    def _count(self, topics: Iterable[str], before: MemberMetadata) -> None:
        """A member subscribes to these instead."""
        for name in set(topics):
            self._subscribers[name] = self._subscribers.get(name, 0) + 1
        for name in set(before.topics):
            self._subscribers[name] -= 1
            if not self._subscribers[name]:
                del self._subscribers[name]

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
