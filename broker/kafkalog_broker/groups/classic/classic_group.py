"""A classic group: its members, generation and protocol (Kafka's ClassicGroup).

`ClassicGroupManager` has the timers of groups and appends their records. It changes a group only through the methods of
ClassicGroup, which maintain the counts that determine the end of a phase.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group_member import ClassicGroupMember
from kafkalog_broker.groups.classic.classic_group_records import group_key, group_value
from kafkalog_broker.groups.classic.classic_requests import (
    NO_MEMBER,
    JoinCallback,
    JoinedMember,
    JoinRequest,
    JoinResponse,
    Protocols,
    SyncResponse,
)
from kafkalog_broker.groups.classic.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from kafkalog_broker.groups.offset_requests import CommitRequest


class ClassicGroupState(Enum):
    """State of a classic group. The value is the name in ListGroups and DescribeGroups."""

    EMPTY = "Empty"  # no members; the group is removed when its last offset has expired
    PREPARING_REBALANCE = "PreparingRebalance"
    """Join phase, which lasts until all members have joined (again) or the rebalance timeout expires."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Sync phase, which lasts until the leader of the new generation sends the assignment."""
    STABLE = "Stable"  # the assignment of the generation is in the log
    DEAD = "Dead"  # removed, or unloaded: the object is no longer in use


PREVIOUS_STATES: Mapping[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.EMPTY, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}
"""The states from which a group may change to each state."""


class ClassicGroup:
    """A classic group. Not thread-safe; call from the event loop."""

    def __init__(self, group_id: str, now_ms: Callable[[], int]) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.DEAD
        self.state_timestamp_ms = now_ms()  # time of the last change of state; -1 if loaded from Kafka 2.0 or before
        self.generation = 0
        self.protocol_type: str | None = None  # None for a simple group, which only commits offsets
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}  # group.instance.id to member ID
        self.pending_members: set[str] = set()
        """Member IDs that were sent with MEMBER_ID_REQUIRED, and with which no member has joined yet."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.new_member_added = False  # whether a member has joined in the first join phase, which is then extended
        self.topics: frozenset[str] | None = None
        """Topics that the members subscribe to; None if the coordinator cannot know them."""
        self.awaiting_join_count = 0
        self._supported: Counter[str] = Counter()  # number of members that support each protocol
        self._now_ms = now_ms

    @classmethod
    def from_record(cls, group_id: str, record: Any, now_ms: Callable[[], int]) -> ClassicGroup:
        """Create from a GroupMetadataValue. In version 0, the session timeout is also the rebalance timeout."""
        group = cls(group_id, now_ms)
        group.generation = record.generation
        group.protocol_type = record.protocol_type or None
        group.protocol = record.protocol
        group.leader = record.leader
        group.state_timestamp_ms = record.current_state_timestamp
        for loaded in record.members:
            protocols = () if record.protocol is None else ((record.protocol, loaded.subscription),)
            member_id, instance, client_id, host, rebalance_ms, session_ms, _, assignment = loaded
            group.add(ClassicGroupMember(
                member_id, instance, client_id, host, session_ms if rebalance_ms == -1 else rebalance_ms, session_ms,
                record.protocol_type, protocols, assignment,
            ))  # fmt: skip
        if group.members:
            group.state = ClassicGroupState.STABLE
        group.topics = group._subscribed_topics()
        return group

    def settle_protocol(self) -> None:
        """Select the protocol that all members support, and parse their subscriptions."""
        self.protocol = self.select_protocol() if self.members else None
        self.topics = self._subscribed_topics()

    def to_record(self, assignments: dict[str, bytes] | None = None) -> Record:
        """Return the record of the group.

        Args:
            assignments: Assignments by member ID; None for the current assignments of the members.

        Raises:
            BrokerError: unknown_server_error if a text is too long for a record.
        """
        members = [
            (
                member.member_id, member.group_instance_id, member.client_id, member.client_host,
                member.rebalance_timeout_ms, member.session_timeout_ms, member.metadata(self.protocol),
                member.assignment if assignments is None else assignments[member.member_id],
            )
            for member in self.members.values()
        ]  # fmt: skip
        protocol = self.protocol_type or "", self.generation, self.protocol
        return group_key(self.group_id), group_value((*protocol, self.leader, self.state_timestamp_ms, members))

    def transition_to(self, state: ClassicGroupState) -> None:
        """Change the state, and set its timestamp."""
        assert self.state in PREVIOUS_STATES[state], f"group {self.group_id!r}: {state.value} after {self.state.value}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = self._now_ms()

    def add(self, member: ClassicGroupMember) -> None:
        if not self.members:
            self.protocol_type = member.protocol_type
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._supported.update(member.protocol_names)
        self.awaiting_join_count += member.awaiting_join is not None
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or pending member. If it was the leader, the first remaining member becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._forget_protocols(member)
            self.awaiting_join_count -= member.awaiting_join is not None
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)

    def update(
        self, member: ClassicGroupMember, stated: JoinRequest | ClassicGroupMember, awaiting_join: JoinCallback | None
    ) -> None:
        """Update the protocols and timeouts of a member that joins again.

        If an earlier JoinGroup request of the member still waits, it is answered with REBALANCE_IN_PROGRESS.

        Args:
            stated: The request with the protocols and timeouts, or the member before the request to restore it.
            awaiting_join: Callback of the request, if it waits for the end of the join phase.
        """
        if awaiting_join is not None:
            self.answer_join(member, JoinResponse(ErrorCode.rebalance_in_progress, member.member_id))
        self._forget_protocols(member)
        member.protocols = stated.protocols
        self._supported.update(member.protocol_names)
        member.rebalance_timeout_ms = stated.rebalance_timeout_ms
        member.session_timeout_ms = stated.session_timeout_ms
        self.awaiting_join_count += (awaiting_join is not None) - (member.awaiting_join is not None)
        member.awaiting_join = awaiting_join

    def replace_static(self, group_instance_id: str, old_id: str, new_id: str) -> ClassicGroupMember:
        """Give a static member a new member ID. Answer waiting requests with the old ID with FENCED_INSTANCE_ID."""
        old = self.members.pop(old_id)
        self.answer_join(old, JoinResponse(ErrorCode.fenced_instance_id, old_id))
        self.answer_sync(old, SyncResponse(ErrorCode.fenced_instance_id))
        new = self.members[new_id] = replace(old, member_id=new_id, is_new=False)
        if self.leader == old_id:
            self.leader = new_id
        self.pending_sync.discard(old_id)
        self.static_members[group_instance_id] = new_id
        return new

    def elect_joined_leader(self) -> bool:
        """Select a leader among the members that have joined. Return False if no member has joined."""
        joined = {member.member_id: None for member in self.members.values() if member.awaiting_join is not None}
        if joined and self.leader not in joined:
            self.leader = next(iter(joined))
        return bool(joined)

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Check the IDs of a member.

        Raises:
            BrokerError: unknown_member_id; fenced_instance_id for a static member that was replaced.
        """
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                raise BrokerError(
                    ErrorCode.unknown_member_id, f"group {self.group_id!r} has no instance {group_instance_id!r}"
                )
            if current != member_id:
                raise BrokerError(
                    ErrorCode.fenced_instance_id,
                    f"group {self.group_id!r}: instance {group_instance_id!r} is member {current!r}, not {member_id!r}",
                )
        if member_id not in self.members:
            raise BrokerError(ErrorCode.unknown_member_id, f"group {self.group_id!r} has no member {member_id!r}")

    def check_generation(self, generation: int) -> None:
        """Raise BrokerError illegal_generation if the generation is not the current one."""
        if generation != self.generation:
            raise BrokerError(
                ErrorCode.illegal_generation,
                f"group {self.group_id!r} is in generation {self.generation}, the member is in {generation}",
            )

    def check_commit(self, request: CommitRequest) -> None:
        """Check an offset commit (Kafka: `ClassicGroup.validateOffsetCommit`). Raises BrokerError."""
        if request.generation < 0 and self.state is ClassicGroupState.EMPTY:
            return  # an administrator, or a consumer that assigns partitions to itself
        in_transaction = request.producer is not None
        if request.generation < 0 and request.member_id == NO_MEMBER and request.group_instance_id is None:
            if in_transaction:
                return  # producers before Kafka 2.5 name no member
            raise BrokerError(
                ErrorCode.unknown_member_id, f"group {self.group_id!r} has members, so the commit must name one of them"
            )
        self.check_member(request.member_id, request.group_instance_id)
        self.check_generation(request.generation)
        if not in_transaction and self.state is ClassicGroupState.COMPLETING_REBALANCE:
            # The member does not have its new assignment yet: the partitions may be assigned to another member.
            raise BrokerError(
                ErrorCode.rebalance_in_progress, f"group {self.group_id!r} waits for the assignment from its leader"
            )

    @property
    def has_all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _forget_protocols(self, member: ClassicGroupMember) -> None:
        self._supported.subtract(member.protocol_names)
        self._supported = +self._supported  # drops protocols that no member supports any more

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols may join: all present members support one of them."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(
            self._supported[name] == len(self.members) for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol with the most votes. Each member votes for its first one that all members support."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in candidates)] += 1
        return votes.most_common(1)[0][0]

    def begin_generation(self) -> None:
        """Begin the next generation with the remaining members, after the join phase."""
        self.generation += 1
        self.settle_protocol()
        self.transition_to(ClassicGroupState.COMPLETING_REBALANCE if self.members else ClassicGroupState.EMPTY)
        self.pending_sync.clear()

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            member_topics = subscribed_topics(member.metadata(self.protocol))
            if member_topics is None:
                return None
            topics |= member_topics
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to a topic. True if the subscriptions of consumers are unknown."""
        return self.protocol_type == PROTOCOL_TYPE if self.topics is None else topic in self.topics

    def answer_join(self, member: ClassicGroupMember, answer: JoinResponse) -> None:
        """Answer the waiting JoinGroup request of a member, if there is one."""
        waiting = member.awaiting_join
        member.awaiting_join = None
        if waiting is not None:
            self.awaiting_join_count -= 1
            waiting(answer)

    def answer_sync(self, member: ClassicGroupMember, answer: SyncResponse) -> bool:
        """Answer the waiting SyncGroup request of a member. Return False if there is none."""
        waiting = member.awaiting_sync
        member.awaiting_sync = None
        if waiting is None:
            return False
        waiting(answer)
        return True

    def current_generation(self, member_id: str, *, with_members: bool) -> JoinResponse:
        """Return the response to JoinGroup for the current generation."""
        members = [
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol))
            for member in (self.members.values() if with_members else ())
        ]
        return JoinResponse(
            ErrorCode.none, member_id, self.generation, self.protocol_type, self.protocol, self.leader or "",
            tuple(members),
        )  # fmt: skip
