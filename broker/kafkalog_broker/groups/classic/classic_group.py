"""A classic group: state without time-outs, logs or clients (Kafka's ClassicGroup).

Every change goes through a method of Group, which keeps the counts that decide when a phase is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from kafkalog_broker.groups.classic.messages import (
    NO_MEMBER,
    CommitRequest,
    JoinAnswer,
    JoinCallback,
    JoinedMember,
    JoinRequest,
    Protocols,
    SyncAnswer,
    SyncCallback,
)
from kafkalog_broker.groups.classic.offset_records import group_key, group_value


class GroupState(Enum):
    """State of a classic group (Kafka's ClassicGroupState). Values: the names in ListGroups and DescribeGroups."""

    EMPTY = "Empty"  # no members. Its offsets expire, and it goes when the last one has.
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits until every member has (re)joined, or the rebalance timeout is over."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has begun and waits for its leader's assignment."""
    STABLE = "Stable"  # every member has its assignment, which is in the log
    DEAD = "Dead"  # deleted, or handed to another coordinator. Only who kept the object still sees it.


_S = GroupState

MAY_FOLLOW: Mapping[GroupState, frozenset[GroupState]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE}),
    _S.PREPARING_REBALANCE: frozenset({_S.EMPTY, _S.COMPLETING_REBALANCE, _S.STABLE}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
    _S.DEAD: frozenset(_S),
}
"""To each state those that it may follow."""


# A member of a classic group (Kafka's ClassicGroupMember).


@dataclass(slots=True, eq=False)
class Member:
    """Member of a classic group; times in ms. It waits for a generation (`awaiting_join`), then for its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    awaiting_join: JoinCallback | None = None
    awaiting_sync: SyncCallback | None = None
    is_new: bool = False  # has not seen a generation yet, so it cannot send heartbeats

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Who waits for an answer is alive, except a new member: its client may be long gone."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    @property
    def protocol_names(self) -> set[str]:
        return {name for name, _ in self.protocols}

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol of its own. Raises KeyError for another."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(f"member {self.member_id!r} does not support protocol {protocol!r}")


class Group:
    """A classic group. `now_ms` gives the time that a change of state is stamped with."""

    def __init__(self, group_id: str, now_ms: Callable[[], int]) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = now_ms()  # -1: not known, the record is of Kafka 2.0 or before
        self.generation = 0
        self.protocol_type: str | None = None  # None for a simple group: it has only ever committed offsets
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # group.instance.id to member id
        self.pending_members: set[str] = set()
        """Ids that have been handed out (MEMBER_ID_REQUIRED) and not joined yet."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.new_member_added = False  # somebody came during the first join phase, which is then extended
        self.topics: frozenset[str] | None = None
        """Topics that the members subscribe to; None where the coordinator cannot know them."""
        self.awaiting_join_count = 0
        self._supported: Counter[str] = Counter()
        self._now_ms = now_ms

    @classmethod
    def from_record(cls, group_id: str, record: Any, now_ms: Callable[[], int]) -> Group:
        """A group as its last GroupMetadataValue has it. Version 0 has no rebalance timeout: the session's counts."""
        group = cls(group_id, now_ms)
        group.generation = record.generation
        group.protocol_type = record.protocol_type or None
        group.protocol = record.protocol
        group.leader = record.leader
        group.state_timestamp_ms = record.current_state_timestamp
        for loaded in record.members:
            protocols = () if record.protocol is None else ((record.protocol, loaded.subscription),)
            member_id, instance, client_id, host, rebalance_ms, session_ms, _, assignment = loaded
            group.add(Member(
                member_id, instance, client_id, host, session_ms if rebalance_ms == -1 else rebalance_ms, session_ms,
                record.protocol_type, protocols, assignment,
            ))  # fmt: skip
        if group.members:
            group.state = GroupState.STABLE
        group.topics = group._subscribed_topics()
        return group

    def settle_protocol(self) -> None:
        self.protocol = self.select_protocol() if self.members else None
        self.topics = self._subscribed_topics()

    def to_record(self, assignments: dict[str, bytes] | None = None) -> Record:
        """The group's record. assignments: by member id, not the members' own. Raises BrokerError, see group_key."""
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

    def become(self, state: GroupState) -> None:
        assert self.state in MAY_FOLLOW[state], f"group {self.group_id!r}: {state.value} after {self.state.value}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = self._now_ms()

    # members

    def add(self, member: Member) -> None:
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
        """Forget a member or pending member; the first of the others leads when it was the leader."""
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

    def update(self, member: Member, stated: JoinRequest | Member, awaiting_join: JoinCallback | None) -> None:
        """A member joins again, perhaps with other protocols and timeouts. A request of its that still waits is to try
        again."""
        if awaiting_join is not None:
            self.answer_join(member, JoinAnswer(ErrorCode.rebalance_in_progress, member.member_id))
        self._forget_protocols(member)
        member.protocols = stated.protocols
        self._supported.update(member.protocol_names)
        member.rebalance_timeout_ms = stated.rebalance_timeout_ms
        member.session_timeout_ms = stated.session_timeout_ms
        self.awaiting_join_count += (awaiting_join is not None) - (member.awaiting_join is not None)
        member.awaiting_join = awaiting_join

    def replace_static(self, group_instance_id: str, old_id: str, new_id: str) -> Member:
        """Give a static member another member id. Who still waits under the old one is fenced."""
        old = self.members.pop(old_id)
        self.answer_join(old, JoinAnswer(ErrorCode.fenced_instance_id, old_id))
        self.answer_sync(old, SyncAnswer(ErrorCode.fenced_instance_id))
        new = self.members[new_id] = replace(old, member_id=new_id, is_new=False)
        if self.leader == old_id:
            self.leader = new_id
        self.pending_sync.discard(old_id)
        self.static_members[group_instance_id] = new_id
        return new

    def elect_joined_leader(self) -> bool:
        """Let somebody lead who has joined. False when nobody has."""
        joined = {member.member_id: None for member in self.members.values() if member.awaiting_join is not None}
        if joined and self.leader not in joined:
            self.leader = next(iter(joined))
        return bool(joined)

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raises BrokerError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID for a static member that has been replaced."""
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
        if generation != self.generation:
            raise BrokerError(
                ErrorCode.illegal_generation,
                f"group {self.group_id!r} is in generation {self.generation}, the member in {generation}",
            )

    def check_commit(self, request: CommitRequest) -> None:
        """Raises BrokerError (ClassicGroup.validateOffsetCommit)."""
        if request.generation < 0 and self.state is GroupState.EMPTY:
            return  # an administrator, or a consumer that assigns itself
        in_transaction = request.producer is not None
        if request.generation < 0 and request.member_id == NO_MEMBER and request.group_instance_id is None:
            if in_transaction:
                return  # producers before Kafka 2.5 name no member
            raise BrokerError(
                ErrorCode.unknown_member_id, f"group {self.group_id!r} has members, who commit themselves"
            )
        self.check_member(request.member_id, request.group_instance_id)
        self.check_generation(request.generation)
        if not in_transaction and self.state is GroupState.COMPLETING_REBALANCE:
            # Its member knows the new generation but not its assignment yet: what it commits may be another's by now.
            raise BrokerError(ErrorCode.rebalance_in_progress, f"group {self.group_id!r} waits for its assignment")

    @property
    def has_all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # protocols

    def _forget_protocols(self, member: Member) -> None:
        self._supported.subtract(member.protocol_names)
        self._supported = +self._supported  # drops what nobody supports any more

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """True if a member with these protocols leaves the group one that all members know."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(
            self._supported[name] == len(self.members) for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all know; the most votes win, of a tie the first."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in candidates)] += 1
        return votes.most_common(1)[0][0]

    def begin_generation(self) -> None:
        """The join phase is over: the next generation, with the members that are left, or none."""
        self.generation += 1
        self.settle_protocol()
        self.become(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY)
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
            found = subscribed_topics(member.metadata(self.protocol))
            if found is None:
                return None
            topics |= found
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Unknown subscriptions of consumers count as yes: their offsets are left alone."""
        return self.protocol_type == PROTOCOL_TYPE if self.topics is None else topic in self.topics

    # answers

    def answer_join(self, member: Member, answer: JoinAnswer) -> None:
        waiting, member.awaiting_join = member.awaiting_join, None
        if waiting is not None:
            self.awaiting_join_count -= 1
            waiting(answer)

    def answer_sync(self, member: Member, answer: SyncAnswer) -> bool:
        """Answer who waits for its assignment. False when it does not wait."""
        waiting, member.awaiting_sync = member.awaiting_sync, None
        if waiting is None:
            return False
        waiting(answer)
        return True

    def current_generation(self, member_id: str, *, with_members: bool) -> JoinAnswer:
        """Answer to JoinGroup for the generation that has begun."""
        members = [
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol))
            for member in (self.members.values() if with_members else ())
        ]
        return JoinAnswer(
            ErrorCode.none, member_id, self.generation, self.protocol_type, self.protocol, self.leader or "",
            tuple(members),
        )  # fmt: skip
