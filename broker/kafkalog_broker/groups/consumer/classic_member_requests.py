"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members of a consumer group (KIP-848, online migration).

Unlike in a classic group, no request waits: JoinGroup is answered immediately, and the response to the next Heartbeat
tells a member that it has to join again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_requests import (
    NO_MEMBER,
    JoinRequest,
    JoinResponse,
    LeavingMember,
    SyncRequest,
    SyncResponse,
)
from kafkalog_broker.groups.classic.consumer_protocol import (
    PROTOCOL_TYPE,
    encode_assignment,
    parse_subscription,
    protocol_version,
)
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.consumer.consumer_group_epoch import put_consumer_group_epoch
from kafkalog_broker.groups.consumer.consumer_group_members import ConsumerGroups, put_removal, put_returned_member
from kafkalog_broker.groups.consumer.consumer_reconciliation import put_reconciled_member
from kafkalog_broker.groups.consumer.consumer_target_assignment import assign_consumers, is_large_consumer_assignment
from kafkalog_broker.groups.consumer.group_downgrade import downgrade, is_downgraded_by_replacing
from kafkalog_broker.groups.consumer.topic_partitions import partitions_by_id, partitions_by_name
from kafkalog_broker.groups.consumer.topic_regex_resolver import put_regex_change
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_records import ClassicMetadata, GroupType, MemberState
from kafkalog_broker.groups.modern.heartbeat_checks import check_capacity
from kafkalog_broker.groups.modern.member_timers import (
    CLASSIC_JOIN_TIMER,
    CLASSIC_SYNC_TIMER,
    schedule_removal,
    schedule_session_timeout,
    timer_key,
)
from kafkalog_broker.groups.modern.target_assignment import TargetAssignment, put_target_assignment


def join_consumer_group(
    groups: ConsumerGroups, group: ConsumerGroup, request: JoinRequest
) -> GroupResult[JoinResponse]:
    """Process a JoinGroup request (GroupMetadataManager.classicGroupJoinToConsumerGroup).

    Raises:
        BrokerError: group_max_size_reached, inconsistent_group_protocol, unknown_member_id, fenced_instance_id,
            invalid_request, or unknown_server_error for a malformed subscription.
    """
    is_new = request.member_id == NO_MEMBER
    member_id = groups.context.new_id() if is_new else request.member_id
    changes = GroupChanges(GroupType.CONSUMER, group.group_id)
    settings = groups.context.consumer_settings(group.group_id)
    if member_id not in group.members:
        check_capacity(group, settings.max_size)
    is_consumer = request.protocol_type == PROTOCOL_TYPE
    if not (is_consumer and group.supports_classic_protocols(name for name, _ in request.protocols)):
        raise BrokerError(ErrorCode.inconsistent_group_protocol, f"Member {member_id}'s protocols are not supported.")
    if is_new and request.group_instance_id is None and request.requires_known_member_id:
        return changes.result(JoinResponse(ErrorCode.member_id_required, member_id))

    # 1. Get or create the member.
    member = _joining_member(changes, group, request, member_id, is_new=is_new)
    subscription = _subscription(request)
    owner = group.static_member(request.group_instance_id)
    is_downgraded = owner is not None and is_downgraded_by_replacing(group, owner, groups.context.config)

    # 2. Update the member's subscription, and raise the group epoch if subscriptions or their topics have changed.
    updated = replace(
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
    if updated != member:
        changes.put_member(updated)
    has_other_topics = updated.topics != member.topics
    regex_change = put_regex_change(groups, changes, group, member, updated, may_describe=None)
    has_new_subscription = has_other_topics or regex_change.is_changed
    epoch = put_consumer_group_epoch(groups, changes, group, member, updated, is_bumped=has_new_subscription)

    # 3. Compute the target assignment of the group epoch, if it is due and the group is not downgraded.
    target = TargetAssignment(group.assignment_epoch, group.target_of(updated))
    if not is_downgraded:
        target = put_target_assignment(
            groups, changes, group, epoch, updated, interval_ms=settings.assignment_interval_ms,
            is_large=is_large_consumer_assignment, assign=assign_consumers,
        )  # fmt: skip

    # 4. Reconcile the member with the target assignment. If the group is downgraded with a stale target assignment, the
    # classic group begins with a rebalance instead.
    is_stale = is_downgraded and group.assignment_epoch < epoch
    if not is_stale:
        reported = partitions_by_id(dict(subscription.owned_partitions), groups.context.topics)
        updated = put_reconciled_member(
            groups, changes, group, updated, target, reported, has_new_subscription=has_new_subscription
        )
    if is_downgraded:
        stale = f"Downgrade group {group.group_id} from consumer to classic with stale assignment."
        downgrade(groups, changes, group, joining=updated, reason=stale if is_stale else None)

    changes.on_commit(lambda: _expect_sync(groups, request, updated.member_id))
    return changes.result(
        JoinResponse(ErrorCode.none, updated.member_id, updated.epoch, PROTOCOL_TYPE, request.protocols[0][0])
    )


def _joining_member(
    changes: GroupChanges, group: ConsumerGroup, request: JoinRequest, member_id: str, *, is_new: bool
) -> ConsumerMember:
    instance_id = request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if not is_new:
        return group.identified_member(member_id, instance_id)
    owner = group.static_member(instance_id)
    return ConsumerMember(member_id) if owner is None else put_returned_member(changes, group, owner, member_id)


def _subscription(request: JoinRequest) -> Any:
    try:
        return parse_subscription(request.protocols[0][1])
    except ValueError as error:
        raise BrokerError(ErrorCode.unknown_server_error, f"the subscription is malformed: {error}") from None


def _expect_sync(groups: ConsumerGroups, request: JoinRequest, member_id: str) -> None:
    """Remove a member that has joined if it does not fetch its assignment within its rebalance timeout."""
    group_id = request.group_id
    if group_id not in groups.groups:
        return  # it was downgraded
    schedule_session_timeout(groups, group_id, member_id, request.session_timeout_ms)
    groups.timer.cancel(timer_key(CLASSIC_JOIN_TIMER, group_id, member_id))
    schedule_removal(
        groups, CLASSIC_SYNC_TIMER, group_id, member_id, request.rebalance_timeout_ms,
        "the member failed to sync within timeout",
    )  # fmt: skip


def sync_consumer_group(groups: ConsumerGroups, request: SyncRequest) -> SyncResponse:
    """Process a SyncGroup request (GroupMetadataManager.classicGroupSyncToConsumerGroup).

    Raises:
        BrokerError: unknown_member_id, fenced_instance_id, illegal_generation, inconsistent_group_protocol, or
            rebalance_in_progress if the member has to join again.
    """
    group = groups.group(request.group_id)
    member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation)
    name, metadata = classic.protocols[0]
    for stated, joined in ((request.protocol_type, PROTOCOL_TYPE), (request.protocol, name)):
        if stated is not None and stated != joined:
            raise BrokerError(
                ErrorCode.inconsistent_group_protocol,
                f"member {member.member_id} has joined with {joined!r}, its request has {stated!r}",
            )
    if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(groups, group, member)
        raise BrokerError(
            ErrorCode.rebalance_in_progress,
            f"A new rebalance is triggered in group {group.group_id} and member {member.member_id} should rejoin "
            "to catch up.",
        )
    groups.timer.cancel(timer_key(CLASSIC_SYNC_TIMER, group.group_id, member.member_id))
    schedule_session_timeout(groups, group.group_id, member.member_id, classic.session_timeout_ms)
    partitions = {topic_id: tuple(epochs) for topic_id, epochs in member.assigned.items()}
    assignment = encode_assignment(partitions_by_name(partitions, groups.context.topics), protocol_version(metadata))
    return SyncResponse(ErrorCode.none, request.protocol_type, request.protocol, assignment)


def heartbeat_to_consumer_group(
    groups: ConsumerGroups, group_id: str, member_id: str, generation: int, instance_id: str | None
) -> None:
    """Process a Heartbeat request (GroupMetadataManager.classicGroupHeartbeatToConsumerGroup).

    Raises:
        BrokerError: unknown_member_id, fenced_instance_id, illegal_generation, or rebalance_in_progress if the member
            has to join again.
    """
    group = groups.group(group_id)
    member, classic = _classic_member(group, member_id, instance_id, generation)
    schedule_session_timeout(groups, group_id, member_id, classic.session_timeout_ms)
    can_advance = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_other_owners(member)
    if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS or can_advance:
        _expect_join(groups, group, member)
        raise BrokerError(ErrorCode.rebalance_in_progress, f"member {member_id} of group {group_id} has to join again")


def _expect_join(groups: ConsumerGroups, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Remove a member if it does not join again within its rebalance timeout after the first such response."""
    key = timer_key(CLASSIC_JOIN_TIMER, group.group_id, member.member_id)
    if not groups.timer.is_scheduled(key):
        schedule_removal(
            groups, CLASSIC_JOIN_TIMER, group.group_id, member.member_id, member.rebalance_timeout_ms,
            "the classic member failed to join within the rebalance timeout",
        )  # fmt: skip


def leave_consumer_group(
    groups: ConsumerGroups, group_id: str, leaving: Sequence[LeavingMember]
) -> GroupResult[list[ErrorCode]]:
    """Process a LeaveGroup request and return an error code for each member, in their order.

    An administrator may also remove members of the consumer protocol.

    Raises:
        BrokerError: group_id_not_found.
    """
    group = groups.group(group_id)
    changes = GroupChanges(GroupType.CONSUMER, group_id)
    codes: list[ErrorCode] = []
    removed: dict[str, ConsumerMember] = {}
    for request in leaving:
        member_id, instance_id = request.member_id, request.group_instance_id
        if member_id == NO_MEMBER:  # an administrator removes a static member by its instance ID
            member_id = group.static_members.get(instance_id or "", NO_MEMBER)
        try:
            member = group.identified_member(member_id, instance_id)
        except BrokerError as error:
            codes.append(error.code)
        else:
            codes.append(ErrorCode.none)
            removed[member.member_id] = member
    put_removal(groups, changes, group, list(removed.values()))
    return changes.result(codes)


class _ClassicMember(NamedTuple):
    member: ConsumerMember
    classic: ClassicMetadata


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> _ClassicMember:
    member = group.identified_member(member_id, instance_id)
    if member.classic is None:
        raise BrokerError(ErrorCode.unknown_member_id, f"Member {member_id} does not use the classic protocol.")
    if member.epoch != generation:
        raise BrokerError(
            ErrorCode.illegal_generation,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member.member_id}.",
        )
    return _ClassicMember(member, member.classic)
