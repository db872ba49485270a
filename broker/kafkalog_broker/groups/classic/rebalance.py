"""How a group gets from one generation to the next: join phase, sync phase, and the time-outs of both.

The rules are those of Kafka's GroupMetadataManager (classic groups). Three timers: `join` ends a join phase, `sync` a
sync phase, and `heartbeat` is the session of one member.
"""

from __future__ import annotations

import logging

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.runtime import Timers, Write, write_error
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import Group, GroupEvent, GroupState, Member
from kafkalog_broker.groups.classic.messages import JoinAnswer, SyncAnswer
from kafkalog_broker.groups.classic.offset_records import group_key, group_value

log = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""A new member that waits for its first generation sends no heartbeats, and nobody would notice that it has gone. Not a
public property of Kafka either."""


class Rebalances:
    """The phases of all groups of one partition of __consumer_offsets. `groups` is shared with the owner."""

    def __init__(self, groups: dict[str, Group], config: BrokerConfig, timers: Timers, write: Write) -> None:
        self._groups = groups
        self._config = config
        self._timers = timers
        self._write = write

    # members

    def add(self, group: Group, member: Member, reason: str) -> None:
        """A new member, which waits for its first generation.

        It does not know its id yet (before v4), so it cannot send heartbeats, and while its request is parked nobody
        reads its connection. So its wait is limited by another, longer time than the session's (KAFKA-7610).
        """
        member.is_new = True
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member)
        self.expect_heartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.rebalance_or_complete(group, reason)

    def drop(self, group: Group, member: Member) -> None:
        """A member leaves or has left. A client that still waits is to join again."""
        self._timers.cancel(_heartbeat_key(group, member.member_id))
        group.answer_join(member, JoinAnswer(ErrorCode.unknown_member_id))
        group.answer_sync(member, SyncAnswer(ErrorCode.unknown_member_id))
        group.remove(member.member_id)

    def drop_pending(self, group: Group, member_id: str) -> None:
        """A member id that has been handed out is given back unused."""
        self._timers.cancel(_heartbeat_key(group, member_id))
        group.remove(member_id)

    def drop_session(self, group: Group, member_id: str) -> None:
        """A member id is not in use any more; its group goes on without it."""
        self._timers.cancel(_heartbeat_key(group, member_id))

    def expect_heartbeat(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """A member has been heard of; begin its session again."""
        self._begin_session(group, member.member_id, member.session_timeout_ms if timeout_ms is None else timeout_ms)

    def expect_join(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """A member id has been handed out; it is forgotten unless somebody joins with it."""
        group.pending_members.add(member_id)
        self._begin_session(group, member_id, timeout_ms)

    def _begin_session(self, group: Group, member_id: str, timeout_ms: int) -> None:
        key = _heartbeat_key(group, member_id)
        self._timers.schedule(key, timeout_ms, lambda: self._session_expired(group, member_id))

    def _session_expired(self, group: Group, member_id: str) -> None:
        if not self._is_current(group):
            return
        if member_id in group.pending_members:
            log.info("group %.200r: member id %.200r was never used", group.group_id, member_id)
            group.remove(member_id)
            if group.state is GroupState.PREPARING_REBALANCE and group.has_all_joined:
                self.complete_join(group)
            return
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat:
            return
        log.info("group %.200r: member %.200r has failed (no heartbeat)", group.group_id, member_id)
        self.drop(group, member)
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.rebalance_or_complete(group, f"no heartbeat of member {member_id}")
        elif group.state is GroupState.PREPARING_REBALANCE and group.has_all_joined:
            self.complete_join(group)

    # join phase

    def rebalance_or_complete(self, group: Group, reason: str) -> None:
        """Begin a join phase, or see whether the one that runs is over."""
        if group.can_rebalance:
            self.prepare(group, reason)
        else:
            self.maybe_complete_join(group)

    def prepare(self, group: Group, reason: str) -> None:
        """Begin a join phase: every member has to join again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._propagate_error(group, ErrorCode.rebalance_in_progress)
        group.pending_sync.clear()
        self._timers.cancel(_sync_key(group))
        first = group.state is GroupState.EMPTY
        if first:
            delay = self._config.group_initial_rebalance_delay_ms
            self._schedule_initial_join(group, delay, max(group.rebalance_timeout_ms - delay, 0))
        group.apply(GroupEvent.MEMBER_JOINED if first else GroupEvent.REBALANCE)
        log.info("group %.200r: rebalance after generation %d (%.200r)", group.group_id, group.generation, reason)
        if first:
            return
        if group.has_all_joined:
            self.complete_join(group)
        else:
            self._schedule_join(group)

    def maybe_complete_join(self, group: Group) -> None:
        """End the join phase if everybody is there. The first phase of a group always lasts its time."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.has_all_joined
        ):
            self.complete_join(group)

    def _schedule_join(self, group: Group) -> None:
        self._timers.schedule(_join_key(group), group.rebalance_timeout_ms, lambda: self.complete_join(group))

    def _schedule_initial_join(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        def end() -> None:
            if not self._is_current(group):
                return
            if not group.new_member_added or remaining_ms == 0:
                self.complete_join(group)
                return
            group.new_member_added = False
            delay = min(self._config.group_initial_rebalance_delay_ms, remaining_ms)
            self._schedule_initial_join(group, delay, max(remaining_ms - delay_ms, 0))

        self._timers.schedule(_join_key(group), delay_ms, end)

    def complete_join(self, group: Group) -> None:
        """End the join phase: who has not joined is out (static members stay), the next generation begins."""
        if not self._is_current(group) or group.state is not GroupState.PREPARING_REBALANCE:
            return
        self._timers.cancel(_join_key(group))
        absent = [m for m in group.members.values() if m.awaiting_join is None and not m.is_static]
        for member in absent:
            log.info("group %.200r: member %.200r has not joined again", group.group_id, member.member_id)
            self.drop(group, member)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and none has come. Their sessions will end, or they return.
            self._schedule_join(group)
            return
        group.begin_generation()
        if not group.members:
            log.info("group %.200r: empty in generation %d", group.group_id, group.generation)
            self._write_empty(group)
            return
        log.info(
            "group %.200r: generation %d, %d members, protocol %.200r",
            group.group_id, group.generation, len(group.members), group.protocol,
        )  # fmt: skip
        for member in group.members.values():
            answer = group.current_generation(member.member_id, with_members=member.member_id == group.leader)
            group.answer_join(member, answer)
            self.expect_heartbeat(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        generation = group.generation
        self._timers.schedule(
            _sync_key(group), group.rebalance_timeout_ms, lambda: self._sync_expired(group, generation)
        )

    def _write_empty(self, group: Group) -> None:
        try:
            self._write([(group_key(group.group_id), group_value(group.to_record()))])
        except BrokerError as error:
            # After a crash the generation before this one would be back, whose members time out: nothing is lost.
            log.warning("group %.200r: that it is empty could not be written: %s", group.group_id, error)

    # sync phase

    def _sync_expired(self, group: Group, generation: int) -> None:
        if not self._is_current(group) or group.generation != generation or not group.pending_sync:
            return
        if not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        silent = sorted(group.pending_sync)
        for member_id in silent:
            self.drop(group, group.members[member_id])
        self.prepare(group, f"members {silent} have not asked for their assignment")

    def has_synced(self, group: Group, member_id: str) -> None:
        """A member has asked for its assignment."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self._timers.cancel(_sync_key(group))

    def assign(self, group: Group, assignments: dict[str, bytes]) -> None:
        """The leader's assignment: into the log, then to everybody. Members it leaves out get an empty one."""
        complete = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        try:
            self._write([(group_key(group.group_id), group_value(group.to_record(complete)))])
        except BrokerError as error:
            log.warning("group %.200r: its assignment could not be written: %s", group.group_id, error)
            self._propagate_error(group, write_error(error.code))
            self.rebalance_or_complete(group, f"the assignment could not be written ({error.code.name})")
            return
        for member in group.members.values():
            member.assignment = complete[member.member_id]
        group.apply(GroupEvent.ASSIGNED)
        for member in group.members.values():
            answer = SyncAnswer(ErrorCode.none, group.protocol_type, group.protocol, member.assignment)
            if group.answer_sync(member, answer):
                self.expect_heartbeat(group, member)

    def _propagate_error(self, group: Group, code: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            if group.answer_sync(member, SyncAnswer(code)):
                self.expect_heartbeat(group, member)

    # the end

    def forget(self, group: Group) -> None:
        """Cancel what is scheduled for a group that goes."""
        self._timers.cancel(_join_key(group))
        self._timers.cancel(_sync_key(group))
        for member_id in (*group.members, *group.pending_members):
            self._timers.cancel(_heartbeat_key(group, member_id))

    def _is_current(self, group: Group) -> bool:
        return self._groups.get(group.group_id) is group and group.state is not GroupState.DEAD


def _join_key(group: Group) -> tuple[str, str]:
    return "join", group.group_id


def _sync_key(group: Group) -> tuple[str, str]:
    return "sync", group.group_id


def _heartbeat_key(group: Group, member_id: str) -> tuple[str, str, str]:
    return "heartbeat", group.group_id, member_id
