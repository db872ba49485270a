"""Members of consumer groups that still speak JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848, migration).

Further timers: `join-again` runs while a member was told to join again and has not, `sync-again` until it has asked for
its assignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.consumer_protocol import (
    PROTOCOL_TYPE,
    assignment_of,
    parse_subscription,
    version_of,
)
from kafkalog_broker.groups.classic.messages import (
    NO_MEMBER,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncCallback,
    SyncRequest,
)
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.consumer.consumer_group_manager import (
    ConsumerGroupManager,
    ConsumerResult,
    put_returned_member,
)
from kafkalog_broker.groups.consumer.migration import by_id, by_name, may_downgrade_replacing
from kafkalog_broker.groups.modern.group_manager import MemberResult
from kafkalog_broker.groups.modern.group_records import ClassicMetadata, GroupType, MemberState


class ClassicMembers:
    """Nobody waits here: a join is answered at once, and whoever is to join again learns it from its heartbeat."""

    def __init__(self, groups: ConsumerGroupManager) -> None:
        self._groups = groups

    # ---- JoinGroup

    def join(self, group: ConsumerGroup, request: JoinRequest) -> JoinAnswer:
        groups, is_new = self._groups, request.member_id == NO_MEMBER
        member_id = groups.context.new_id() if is_new else request.member_id
        groups.check_room(group, member_id, groups.settings(group.group_id).max_size)
        if request.protocol_type != PROTOCOL_TYPE or not group.supports(name for name, _ in request.protocols):
            raise BrokerError(
                ErrorCode.inconsistent_group_protocol, f"Member {member_id}'s protocols are not supported."
            )
        if is_new and request.group_instance_id is None and request.requires_known_member_id:
            return JoinAnswer(ErrorCode.member_id_required, member_id)
        result: ConsumerResult = MemberResult(GroupType.CONSUMER, group.group_id)
        result.group = group
        result.member = self._member(result, request, member_id, is_new=is_new)
        self._join(result, request)
        updated = result.updated
        session_ms = request.session_timeout_ms

        def expect_sync() -> None:
            if group.group_id in groups.groups:  # unless it has become a classic one
                groups.begin_session(group.group_id, updated.member_id, session_ms)
                groups.timer.cancel(("join-again", group.group_id, updated.member_id))
                groups.remove_after(
                    "sync-again", group.group_id, updated.member_id, request.rebalance_timeout_ms,
                    "the member failed to sync within timeout",
                )  # fmt: skip

        result.then(expect_sync)
        groups.commit(result)
        return JoinAnswer(ErrorCode.none, updated.member_id, updated.epoch, PROTOCOL_TYPE, request.protocols[0][0])

    def _member(self, result: ConsumerResult, request: JoinRequest, member_id: str, *, is_new: bool) -> ConsumerMember:
        group, instance = result.group, request.group_instance_id
        if instance is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if not is_new:
            return group.identified(member_id, instance)
        owner = group.static_member(instance)
        return ConsumerMember(member_id) if owner is None else put_returned_member(result, group, owner, member_id)

    def _join(self, result: ConsumerResult, request: JoinRequest) -> None:
        groups, group, member = self._groups, result.group, result.member
        try:
            subscription = parse_subscription(request.protocols[0][1])
        except ValueError as error:
            raise BrokerError(ErrorCode.unknown_server_error, f"the subscription is malformed: {error}") from None
        owner = group.static_member(request.group_instance_id)
        replaces_last = owner is not None and may_downgrade_replacing(group, owner, groups.context.config)
        updated = result.updated = replace(
            member,
            instance_id=request.group_instance_id or member.instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=frozenset(subscription.topics),
            regex="",
            client_id=request.client_id,
            client_host=request.client_host,
            classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
        )
        groups.put_if_changed(result)
        _, regex_changed = groups.put_regex(result, None)
        result.anew |= regex_changed
        epoch = groups.bump_epoch(result, bump=result.anew)
        rebalance = replaces_last and group.assignment_epoch < epoch
        present = group.assignment_epoch, group.target_of(updated)
        target = present if replaces_last else groups.target(result, group, epoch, updated)
        if not rebalance:
            result.reported = by_id(dict(subscription.owned_partitions), groups.context.topics)
            groups.reconcile(result, *target)
        if replaces_last:
            stale = f"Downgrade group {group.group_id} from consumer to classic with stale assignment."
            groups.downgrade(result, group, joining=result.updated, reason=stale if rebalance else None)

    # ---- SyncGroup, Heartbeat, LeaveGroup

    def sync(self, request: SyncRequest, answer: SyncCallback) -> None:
        group = self._groups.group(request.group_id)
        member, classic = _classic(group, request.member_id, request.group_instance_id, request.generation)
        name, metadata = classic.protocols[0]
        for stated, joined in ((request.protocol_type, PROTOCOL_TYPE), (request.protocol, name)):
            if stated is not None and stated != joined:
                raise BrokerError(
                    ErrorCode.inconsistent_group_protocol,
                    f"member {member.member_id} has joined with {joined!r}, its request says {stated!r}",
                )
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group, member)
            raise BrokerError(
                ErrorCode.rebalance_in_progress,
                f"A new rebalance is triggered in group {group.group_id} and member {member.member_id} should rejoin "
                "to catch up.",
            )
        self._groups.timer.cancel(("sync-again", group.group_id, member.member_id))
        self._groups.begin_session(group.group_id, member.member_id, classic.session_timeout_ms)
        partitions = {topic: tuple(epochs) for topic, epochs in member.assigned.items()}
        assignment = assignment_of(by_name(partitions, self._groups.context.topics), version_of(metadata))
        answer(SyncAnswer(ErrorCode.none, request.protocol_type, request.protocol, assignment))

    def heartbeat(self, group_id: str, member_id: str, generation: int, instance_id: str | None) -> None:
        """Raises BrokerError, REBALANCE_IN_PROGRESS when the member has to join again."""
        group = self._groups.group(group_id)
        member, classic = _classic(group, member_id, instance_id, generation)
        self._groups.begin_session(group_id, member_id, classic.session_timeout_ms)
        freed = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_partitions(member)
        if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS or freed:
            self._expect_join(group, member)
            raise BrokerError(
                ErrorCode.rebalance_in_progress, f"member {member_id} of group {group_id} has to join again"
            )

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A member is to join again; the time runs since it was first told."""
        self._groups.remove_after(
            "join-again", group.group_id, member.member_id, member.rebalance_timeout_ms,
            "the classic member failed to join within the rebalance timeout", if_absent=True,
        )  # fmt: skip

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> list[ErrorCode]:
        """Error codes by member, in order; also consumer-protocol ones, for administrators. Raises BrokerError."""
        group, codes, gone = self._groups.group(group_id), [], {}
        for request in leaving:
            member_id, instance = request.member_id, request.group_instance_id
            if member_id == NO_MEMBER:  # an administrator removes a static member by its instance id
                member_id = group.static_members.get(instance or "", NO_MEMBER)
            try:
                member = group.identified(member_id, instance)
            except BrokerError as error:
                codes.append(error.code)
            else:
                codes.append(ErrorCode.none)
                gone[member.member_id] = member
        self._groups.remove_members(group, list(gone.values()))
        return codes


def _classic(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMetadata]:
    member = group.identified(member_id, instance_id)
    if member.classic is None:
        raise BrokerError(ErrorCode.unknown_member_id, f"Member {member_id} does not use the classic protocol.")
    if member.epoch != generation:
        raise BrokerError(
            ErrorCode.illegal_generation,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member.member_id}.",
        )
    return member, member.classic
