"""Members of consumer groups that still speak JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848, migration)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer_protocol import PROTOCOL_TYPE, assignment_of, parse_subscription
from kafkalog_broker.groups.messages import NO_MEMBER, JoinAnswer, JoinRequest, LeavingMember, SyncAnswer, SyncRequest
from kafkalog_broker.groups.modern.consumer_group import ConsumerGroup
from kafkalog_broker.groups.modern.conversion import by_id, by_name, downgrade, may_downgrade_replacing
from kafkalog_broker.groups.modern.draft import Draft
from kafkalog_broker.groups.modern.group_store import GroupStore
from kafkalog_broker.groups.modern.heartbeat_checks import check_static
from kafkalog_broker.groups.modern.heartbeats import Heartbeats, check_room, note_member, return_static
from kafkalog_broker.groups.modern.regexes import RegexUpdate
from kafkalog_broker.groups.modern.sessions import Sessions
from kafkalog_broker.groups.modern.values import ClassicMember, ConsumerMember, MemberState


class ClassicMembers:
    """Nobody waits here: a join is answered at once, and whoever is to join again learns it from its heartbeat."""

    def __init__(self, store: GroupStore, sessions: Sessions, heartbeats: Heartbeats) -> None:
        self._store = store
        self._sessions = sessions
        self._steps = heartbeats

    # ---- JoinGroup

    def join(self, group: ConsumerGroup, request: JoinRequest) -> JoinAnswer:
        """Raises BrokerError."""
        is_new = request.member_id == NO_MEMBER
        member_id = self._store.new_id() if is_new else request.member_id
        check_room(group, member_id, self._store.config.group_consumer_max_size)
        if request.protocol_type != PROTOCOL_TYPE or not group.supports(name for name, _ in request.protocols):
            raise BrokerError(
                ErrorCode.inconsistent_group_protocol, f"Member {member_id}'s protocols are not supported."
            )
        if is_new and request.group_instance_id is None and request.requires_known_member_id:
            return JoinAnswer(ErrorCode.member_id_required, member_id)
        draft = Draft(group.group_id)
        member = self._member(draft, group, request, member_id, is_new=is_new)
        updated = self._joined(draft, group, request, member)
        timeout_ms = request.rebalance_timeout_ms
        if group.group_id in self._store.groups:
            draft.then(lambda: self._expect_sync(group.group_id, updated, timeout_ms))
        self._store.commit(draft)
        return JoinAnswer(ErrorCode.none, updated.member_id, updated.epoch, PROTOCOL_TYPE, request.protocols[0][0])

    def _expect_sync(self, group_id: str, member: ConsumerMember, timeout_ms: int) -> None:
        if group_id in self._store.groups and member.classic is not None:
            self._sessions.begin(group_id, member.member_id, member.classic.session_timeout_ms)
            self._sessions.has_joined(group_id, member.member_id, timeout_ms)

    def _member(
        self, draft: Draft, group: ConsumerGroup, request: JoinRequest, member_id: str, *, is_new: bool
    ) -> ConsumerMember:
        instance = request.group_instance_id
        if instance is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        owner = group.static_member(instance)
        if not is_new:
            return check_static(owner, member_id, instance)
        if owner is None:
            return ConsumerMember(member_id)
        return return_static(draft, group, owner, member_id)

    def _joined(
        self, draft: Draft, group: ConsumerGroup, request: JoinRequest, member: ConsumerMember
    ) -> ConsumerMember:
        try:
            subscription = parse_subscription(request.protocols[0][1])
        except ValueError as error:
            raise BrokerError(ErrorCode.unknown_server_error, f"the subscription is malformed: {error}") from None
        owner = group.static_member(request.group_instance_id)
        replaces_last = owner is not None and may_downgrade_replacing(group, owner, self._store.config)
        updated = replace(
            member,
            instance_id=request.group_instance_id or member.instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=frozenset(subscription.topics),
            regex="",
            client_id=request.client_id,
            client_host=request.client_host,
            classic=ClassicMember(request.session_timeout_ms, request.protocols),
        )
        bump = note_member(draft, member, updated)
        bump |= self._steps.regexes.note(draft, group, member, updated, None) is not RegexUpdate.NONE
        epoch, homogeneous = self._steps.refresh(draft, group, member, updated, bump=bump)
        rebalance = replaces_last and group.assignment_epoch < epoch
        if replaces_last:
            target_epoch, target = group.assignment_epoch, group.target_of(updated.member_id, updated.instance_id)
        else:
            target_epoch, target = self._steps.target(draft, group, epoch, member, updated, homogeneous=homogeneous)
        if not rebalance:
            owned = by_id(subscription.owned, self._store.topics)
            updated = self._steps.reconcile(
                draft, group, updated, target_epoch, target, owned, subscription_changed=bump
            )
        if replaces_last:
            stale = f"Downgrade group {group.group_id} from consumer to classic with stale assignment."
            downgrade(self._store, draft, group, joining=updated, reason=stale if rebalance else None)
        return updated

    # ---- SyncGroup, Heartbeat, LeaveGroup

    def sync(self, group: ConsumerGroup, request: SyncRequest) -> SyncAnswer:
        """Raises BrokerError."""
        member = _classic(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation)
        assert member.classic is not None
        name, metadata = member.classic.protocols[0]
        for asked, known in ((request.protocol_type, PROTOCOL_TYPE), (request.protocol, name)):
            if asked is not None and asked != known:
                raise BrokerError(
                    ErrorCode.inconsistent_group_protocol,
                    f"member {member.member_id} has joined with {known!r}, its request says {asked!r}",
                )
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._sessions.expect_join(group.group_id, member)
            raise BrokerError(
                ErrorCode.rebalance_in_progress,
                f"A new rebalance is triggered in group {group.group_id} and member {member.member_id} should rejoin "
                "to catch up.",
            )
        self._sessions.has_synced(group.group_id, member.member_id)
        self._sessions.begin(group.group_id, member.member_id, member.classic.session_timeout_ms)
        assigned = by_name({topic: tuple(epochs) for topic, epochs in member.assigned.items()}, self._store.topics)
        version = int.from_bytes(metadata[:2], "big")
        return SyncAnswer(ErrorCode.none, request.protocol_type, request.protocol, assignment_of(assigned, version))

    def heartbeat(self, group: ConsumerGroup, member_id: str, generation: int, instance_id: str | None) -> None:
        """Raises BrokerError, REBALANCE_IN_PROGRESS when the member has to join again."""
        member = _classic(group, member_id, instance_id)
        _check_generation(member, generation)
        assert member.classic is not None
        self._sessions.begin(group.group_id, member_id, member.classic.session_timeout_ms)
        freed = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_partitions(member)
        if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS or freed:
            self._sessions.expect_join(group.group_id, member)
            raise BrokerError(
                ErrorCode.rebalance_in_progress, f"member {member_id} of group {group.group_id} has to join again"
            )

    def leave(self, group: ConsumerGroup, leaving: Sequence[LeavingMember]) -> list[ErrorCode]:
        """One code a member, in their order; also those with the consumer protocol, for administrators. Raises
        BrokerError."""
        codes, gone = [], {}
        for asked in leaving:
            try:
                if asked.group_instance_id is None:
                    member = group.member(asked.member_id)
                else:
                    owner = group.static_member(asked.group_instance_id)
                    named = owner.member_id if owner is not None and asked.member_id == NO_MEMBER else asked.member_id
                    member = check_static(owner, named, asked.group_instance_id)
            except BrokerError as error:
                codes.append(error.code)
            else:
                codes.append(ErrorCode.none)
                gone[member.member_id] = member
        self._sessions.remove(group, list(gone.values()))
        return codes


def _classic(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Raises BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = check_static(group.static_member(instance_id), member_id, instance_id)
    if member.classic is None:
        raise BrokerError(ErrorCode.unknown_member_id, f"Member {member_id} does not use the classic protocol.")
    return member


def _check_generation(member: ConsumerMember, generation: int) -> None:
    """Raises BrokerError (ILLEGAL_GENERATION)."""
    if member.epoch != generation:
        raise BrokerError(
            ErrorCode.illegal_generation,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member.member_id}.",
        )
