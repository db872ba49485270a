"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups, and the join and sync phases between generations
(Kafka's GroupMetadataManager)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from kafkalog_broker.coordinator.coordinator_runtime import Append
from kafkalog_broker.coordinator.coordinator_timer import CoordinatorTimer
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import PREVIOUS_STATES, ClassicGroup, ClassicGroupState
from kafkalog_broker.groups.classic.classic_group_member import ClassicGroupMember
from kafkalog_broker.groups.classic.classic_requests import (
    NO_MEMBER,
    JoinCallback,
    JoinRequest,
    JoinResponse,
    LeavingMember,
    SyncCallback,
    SyncRequest,
    SyncResponse,
)
from kafkalog_broker.groups.modern.group_context import GroupContext

_log = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""Session timeout of a member before its first generation, in which it sends no heartbeats. A constant in Kafka too."""


class ClassicGroupManager:
    """The classic groups of one partition of __consumer_offsets. Not thread-safe; call from the event loop.

    A group has three kinds of timers: "join" ends the join phase, "sync" ends the sync phase, and "heartbeat" ends the
    session of one member.
    """

    def __init__(self, context: GroupContext, timer: CoordinatorTimer, append: Append) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self._config = context.config
        self._timer = timer
        self._append = append
        self._now_ms = context.clock.now_ms
        self._new_id = context.new_id

    def join(self, request: JoinRequest, answer: JoinCallback) -> None:
        """Call `answer` once, now or at the end of the join phase, unless BrokerError is raised."""
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id != NO_MEMBER:
                raise BrokerError(ErrorCode.unknown_member_id, f"there is no group {request.group_id!r}")
            # As in Kafka, the record of the new empty group is written before the response.
            group = ClassicGroup(request.group_id, self._now_ms)
            self._append([group.to_record()])
            self.groups[request.group_id] = group
        if not self._has_room(group, request.member_id):
            self._drop_pending(group, request.member_id)
            answer(JoinResponse(ErrorCode.group_max_size_reached))
            self._maybe_complete_join(group)
        elif not group.supports(request.protocol_type, request.protocols):
            raise BrokerError(ErrorCode.inconsistent_group_protocol)
        elif request.member_id == NO_MEMBER:
            self._join_new(group, request, answer)
        elif request.member_id in group.pending_members and request.group_instance_id is None:
            self._add(group, request, request.member_id, answer)
        else:
            self._rejoin(group, request, answer)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Return whether a member may join. In a join phase, only the members that have joined are counted."""
        match group.state:
            case ClassicGroupState.PREPARING_REBALANCE:
                member = group.members.get(member_id)
                has_joined = member is not None and member.awaiting_join is not None
                return has_joined or group.awaiting_join_count < self._config.group_max_size
            case ClassicGroupState.COMPLETING_REBALANCE | ClassicGroupState.STABLE:
                return member_id in group.members or len(group.members) < self._config.group_max_size
            case _:
                return True

    def _join_new(self, group: ClassicGroup, request: JoinRequest, answer: JoinCallback) -> None:
        instance = request.group_instance_id
        if instance is not None:
            new_id = f"{instance}-{self._new_id()}"
            old_id = group.static_members.get(instance)
            if old_id is None:
                self._add(group, request, new_id, answer)
            else:
                self._rejoin_static(group, request, old_id, new_id, answer)
            return
        new_id = f"{request.client_id}-{self._new_id()}"
        if request.requires_known_member_id:
            group.pending_members.add(new_id)  # removed by its session timeout unless it is used to join
            self._begin_session(group, new_id, request.session_timeout_ms)
            answer(JoinResponse(ErrorCode.member_id_required, new_id))
        else:
            self._add(group, request, new_id, answer)

    def _add(self, group: ClassicGroup, request: JoinRequest, member_id: str, answer: JoinCallback) -> None:
        member = ClassicGroupMember(
            member_id, request.group_instance_id, request.client_id, request.client_host,
            request.rebalance_timeout_ms, request.session_timeout_ms, request.protocol_type, request.protocols,
            awaiting_join=answer,
            is_new=True,
        )  # fmt: skip
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.previous_state is ClassicGroupState.EMPTY:
            group.new_member_added = True
        group.add(member)
        # The member sends no heartbeats while its request waits, and before v4 it has no member ID yet. If it has
        # disconnected, this timeout removes it (KAFKA-7610).
        self.restart_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete(group, f"new member {member_id}; client reason: {request.reason}")

    def _rejoin(self, group: ClassicGroup, request: JoinRequest, answer: JoinCallback) -> None:
        member_id = request.member_id
        group.check_member(member_id, request.group_instance_id)
        member = group.members[member_id]
        is_leader = member_id == group.leader
        unchanged = member.protocols == request.protocols
        match group.state:
            case ClassicGroupState.COMPLETING_REBALANCE if unchanged:
                # The response to its first JoinGroup may have been lost.
                answer(group.current_generation(member_id, with_members=is_leader))
            case ClassicGroupState.STABLE if unchanged and not is_leader:
                answer(group.current_generation(member_id, with_members=False))
            case _:
                # A leader joins again to begin a rebalance, after a change of metadata such as new partitions.
                group.update(member, request, answer)
                self._rebalance_or_complete(group, f"member {member_id} joins again; client reason: {request.reason}")

    def _rejoin_static(
        self, group: ClassicGroup, request: JoinRequest, old_id: str, new_id: str, answer: JoinCallback
    ) -> None:
        """Let a static member join with a new member ID, as after a restart (KIP-345)."""
        instance = request.group_instance_id
        assert instance is not None
        old_leader = group.leader or ""
        self._timer.cancel(("heartbeat", group.group_id, old_id))
        member = group.replace_static(instance, old_id, new_id)
        before = replace(member)
        group.update(member, request, answer)
        self.restart_session(group, member)
        reason = f"static member {new_id} joins again; client reason: {request.reason}"
        match group.state:
            case ClassicGroupState.STABLE if group.protocol == group.select_protocol():
                pass
            case ClassicGroupState.STABLE:
                self._rebalance_or_complete(group, reason)
                return
            case ClassicGroupState.COMPLETING_REBALANCE:
                # The leader may assign to the old member ID; then the new one would get no partitions.
                self.prepare_rebalance(group, reason)
                return
            case _:
                self._maybe_complete_join(group)
                return
        try:
            self._append([group.to_record()])
        except BrokerError as error:
            _log.warning("group %.200r: static member %.200r could not be written: %s", group.group_id, instance, error)
            group.update(member, before, None)
            self._timer.cancel(("heartbeat", group.group_id, new_id))
            restored = group.replace_static(instance, new_id, old_id)
            self.restart_session(group, restored)
            answer(
                JoinResponse(error.code, NO_MEMBER, group.generation, group.protocol_type, group.protocol, old_leader)
            )
            return
        # The member keeps its assignment without a rebalance. A leader before v9 would send a new assignment if the
        # response named it as the leader. So the response names the previous leader ID, maybe the member's old ID.
        skips_assignment = request.supports_skipping_assignment and new_id == group.leader
        response = group.current_generation(new_id, with_members=skips_assignment)
        response = response._replace(skip_assignment=skips_assignment)
        if not request.supports_skipping_assignment:
            response = response._replace(leader=old_leader)
        group.answer_join(member, response)

    def sync(self, request: SyncRequest, answer: SyncCallback) -> None:
        """Call `answer` once, now or when the leader has sent the assignment, unless BrokerError is raised."""
        group = self.groups.get(request.group_id)
        if group is None or group.state is ClassicGroupState.EMPTY:
            raise BrokerError(ErrorCode.unknown_member_id, f"group {request.group_id!r} has no members")
        group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation)
        for stated, current in ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol)):
            if stated is not None and current is not None and stated != current:
                raise BrokerError(
                    ErrorCode.inconsistent_group_protocol,
                    f"group {group.group_id!r} has protocol {current!r}, the request has {stated!r}",
                )
        member = group.members[request.member_id]
        match group.state:
            case ClassicGroupState.PREPARING_REBALANCE:
                answer(SyncResponse(ErrorCode.rebalance_in_progress))
            case ClassicGroupState.COMPLETING_REBALANCE:
                # After a timeout a client sends a second request. The assignment is the response to the last one only.
                group.answer_sync(member, SyncResponse(ErrorCode.rebalance_in_progress))
                member.awaiting_sync = answer
                self._mark_synced(group, member.member_id)
                if member.member_id == group.leader:
                    self._assign(group, dict(request.assignments))
            case _:
                self._mark_synced(group, member.member_id)
                answer(SyncResponse(ErrorCode.none, group.protocol_type, group.protocol, member.assignment))

    def heartbeat(self, group_id: str, member_id: str, generation: int, group_instance_id: str | None) -> None:
        """Restart the session of a member.

        Raises:
            BrokerError: rebalance_in_progress if the member has to join again; unknown_member_id, fenced_instance_id,
                illegal_generation.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.unknown_member_id, f"there is no group {group_id!r}")
        group.check_member(member_id, group_instance_id)
        group.check_generation(generation)
        self.restart_session(group, group.members[member_id])
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            raise BrokerError(ErrorCode.rebalance_in_progress, f"group {group_id!r} is in its join phase")

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> list[ErrorCode]:
        """Return an error code for each member, in their order."""
        group = self.groups.get(group_id)
        if group is None:
            return [ErrorCode.unknown_member_id] * len(leaving)
        codes = [self._leave(group, member) for member in leaving]
        left_member_ids = [
            member.member_id for member, code in zip(leaving, codes, strict=True) if code is ErrorCode.none
        ]
        if left_member_ids and group.state is not ClassicGroupState.EMPTY:
            self._rebalance_or_complete(group, f"members {left_member_ids} have left")
        return codes

    def _leave(self, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
        member_id = leaving.member_id
        if member_id in group.pending_members:
            self._drop_pending(group, member_id)
            return ErrorCode.none
        if member_id == NO_MEMBER:
            # An administrator removes a static member by its instance ID.
            current_id = group.static_members.get(leaving.group_instance_id or "")
            if leaving.group_instance_id is None or current_id is None:
                return ErrorCode.unknown_member_id
            member_id = current_id
        try:
            group.check_member(member_id, leaving.group_instance_id)
        except BrokerError as error:
            return error.code
        _log.info("group %.200r: member %.200r leaves (%.200r)", group.group_id, member_id, leaving.reason)
        self._drop(group, group.members[member_id])
        return ErrorCode.none

    def remove_group(self, group: ClassicGroup) -> None:
        """Remove a group from memory, because its tombstone is in the log or it is unloaded."""
        self._timer.cancel(("join", group.group_id))
        self._timer.cancel(("sync", group.group_id))
        for member_id in (*group.members, *group.pending_members):
            self._timer.cancel(("heartbeat", group.group_id, member_id))
        group.transition_to(ClassicGroupState.DEAD)
        self.groups.pop(group.group_id, None)

    def forget(self, group: ClassicGroup, code: ErrorCode = ErrorCode.rebalance_in_progress) -> None:
        """Answer the waiting members of a group that was upgraded or is unloaded, and remove it from memory."""
        for member in group.members.values():
            group.answer_join(member, JoinResponse(code, member.member_id))
            group.answer_sync(member, SyncResponse(code))
        self.remove_group(group)

    def add_downgraded(self, group: ClassicGroup, rebalance: str | None) -> None:
        """Add a group that was downgraded from a consumer group and whose record is in the log.

        Args:
            rebalance: Reason for an immediate rebalance; None if there is none.
        """
        self.groups[group.group_id] = group
        for member in group.members.values():
            self.restart_session(group, member)
        if rebalance is not None:
            self.prepare_rebalance(group, rebalance)

    def _drop(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Remove a member. Its waiting requests are answered with UNKNOWN_MEMBER_ID, so that the client joins again."""
        self._timer.cancel(("heartbeat", group.group_id, member.member_id))
        group.answer_join(member, JoinResponse(ErrorCode.unknown_member_id))
        group.answer_sync(member, SyncResponse(ErrorCode.unknown_member_id))
        group.remove(member.member_id)

    def _drop_pending(self, group: ClassicGroup, member_id: str) -> None:
        self._timer.cancel(("heartbeat", group.group_id, member_id))
        group.remove(member_id)

    def restart_session(self, group: ClassicGroup, member: ClassicGroupMember, timeout_ms: int | None = None) -> None:
        """Restart the session of a member. If `timeout_ms` is None, the session timeout of the member is used."""
        self._begin_session(group, member.member_id, member.session_timeout_ms if timeout_ms is None else timeout_ms)

    def _begin_session(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        key = ("heartbeat", group.group_id, member_id)
        self._timer.schedule(key, timeout_ms, lambda: self._session_expired(group, member_id))

    def _session_expired(self, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member_id in group.pending_members:
            _log.info("group %.200r: member ID %.200r was not used to join", group.group_id, member_id)
            group.remove(member_id)
        elif member is None or member.has_satisfied_heartbeat:
            return
        else:
            _log.info("group %.200r: member %.200r has failed (no heartbeat)", group.group_id, member_id)
            self._drop(group, member)
            if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
                self._rebalance_or_complete(group, f"no heartbeat of member {member_id}")
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.has_all_joined:
            self._complete_join(group)

    def _rebalance_or_complete(self, group: ClassicGroup, reason: str) -> None:
        if group.state in PREVIOUS_STATES[ClassicGroupState.PREPARING_REBALANCE]:
            self.prepare_rebalance(group, reason)
        else:
            self._maybe_complete_join(group)

    def prepare_rebalance(self, group: ClassicGroup, reason: str) -> None:
        """Begin a join phase: every member has to join again."""
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._propagate_error(group, ErrorCode.rebalance_in_progress)
        group.pending_sync.clear()
        self._timer.cancel(("sync", group.group_id))
        first = group.state is ClassicGroupState.EMPTY
        if first:
            delay = self._config.group_initial_rebalance_delay_ms
            self._schedule_initial_join(group, delay, max(group.rebalance_timeout_ms - delay, 0))
        group.transition_to(ClassicGroupState.PREPARING_REBALANCE)
        _log.info("group %.200r: rebalance after generation %d (%.200r)", group.group_id, group.generation, reason)
        if first:
            return
        if group.has_all_joined:
            self._complete_join(group)
        else:
            self._schedule_join(group)

    def _maybe_complete_join(self, group: ClassicGroup) -> None:
        """End the join phase if all members have joined. The first phase of a group always lasts its full time."""
        if (
            group.state is ClassicGroupState.PREPARING_REBALANCE
            and group.previous_state is not ClassicGroupState.EMPTY
            and group.has_all_joined
        ):
            self._complete_join(group)

    def _schedule_join(self, group: ClassicGroup) -> None:
        self._timer.schedule(("join", group.group_id), group.rebalance_timeout_ms, lambda: self._complete_join(group))

    def _schedule_initial_join(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        def end() -> None:
            if not group.new_member_added or remaining_ms == 0:
                self._complete_join(group)
                return
            group.new_member_added = False
            delay = min(self._config.group_initial_rebalance_delay_ms, remaining_ms)
            self._schedule_initial_join(group, delay, max(remaining_ms - delay_ms, 0))

        self._timer.schedule(("join", group.group_id), delay_ms, end)

    def _complete_join(self, group: ClassicGroup) -> None:
        """End the join phase: remove dynamic members that have not joined, and begin the next generation."""
        if group.state is not ClassicGroupState.PREPARING_REBALANCE:
            return
        self._timer.cancel(("join", group.group_id))
        absent = [
            member
            for member in group.members.values()
            if member.awaiting_join is None and member.group_instance_id is None
        ]
        for member in absent:
            _log.info("group %.200r: member %.200r has not joined again", group.group_id, member.member_id)
            self._drop(group, member)
        if group.members and not group.elect_joined_leader():
            # Only static members remain, and none has joined. Wait until one joins or all sessions have expired.
            self._schedule_join(group)
            return
        group.begin_generation()
        if not group.members:
            _log.info("group %.200r: empty in generation %d", group.group_id, group.generation)
            try:
                self._append([group.to_record()])
            except BrokerError as error:
                # After a crash the previous generation is loaded, and its members time out.
                _log.warning(
                    "group %.200r: the record of the empty group could not be written: %s", group.group_id, error
                )
            return
        _log.info(
            "group %.200r: generation %d, %d members, protocol %.200r",
            group.group_id, group.generation, len(group.members), group.protocol,
        )  # fmt: skip
        for member in group.members.values():
            answer = group.current_generation(member.member_id, with_members=member.member_id == group.leader)
            group.answer_join(member, answer)
            self.restart_session(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self._timer.schedule(("sync", group.group_id), group.rebalance_timeout_ms, lambda: self._sync_expired(group))

    def _sync_expired(self, group: ClassicGroup) -> None:
        not_synced = sorted(group.pending_sync)
        for member_id in not_synced:
            self._drop(group, group.members[member_id])
        if not_synced:
            self.prepare_rebalance(group, f"members {not_synced} have not sent SyncGroup")

    def _mark_synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self._timer.cancel(("sync", group.group_id))

    def _assign(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """Append the assignment from the leader to the log, then answer all members. The default is b""."""
        complete = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        try:
            self._append([group.to_record(complete)])
        except BrokerError as error:
            _log.warning("group %.200r: its assignment could not be written: %s", group.group_id, error)
            self._propagate_error(group, error.code)
            self._rebalance_or_complete(group, f"the assignment could not be written ({error.code.name})")
            return
        for member in group.members.values():
            member.assignment = complete[member.member_id]
        group.transition_to(ClassicGroupState.STABLE)
        for member in group.members.values():
            answer = SyncResponse(ErrorCode.none, group.protocol_type, group.protocol, member.assignment)
            if group.answer_sync(member, answer):
                self.restart_session(group, member)

    def _propagate_error(self, group: ClassicGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            if group.answer_sync(member, SyncResponse(code)):
                self.restart_session(group, member)
