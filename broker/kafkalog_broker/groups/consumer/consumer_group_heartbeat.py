"""ConsumerGroupHeartbeat (KIP-848): a member joins, stays or leaves (GroupMetadataManager.consumerGroupHeartbeat)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import ClassicGroupState
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.consumer.consumer_group_epoch import put_consumer_group_epoch
from kafkalog_broker.groups.consumer.consumer_group_members import ConsumerGroups, put_removal, put_returned_member
from kafkalog_broker.groups.consumer.consumer_reconciliation import put_reconciled_member
from kafkalog_broker.groups.consumer.consumer_target_assignment import assign_consumers, is_large_consumer_assignment
from kafkalog_broker.groups.consumer.group_upgrade import upgrade
from kafkalog_broker.groups.consumer.topic_regex_resolver import MayDescribe, put_regex_change
from kafkalog_broker.groups.modern.current_assignment import ReportedOwnership
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_records import GroupType
from kafkalog_broker.groups.modern.heartbeat_checks import (
    check_capacity,
    check_not_blank,
    check_reconciling_member_epoch,
)
from kafkalog_broker.groups.modern.heartbeat_response import HeartbeatResponse, assignment_in_response
from kafkalog_broker.groups.modern.member_timers import schedule_session_timeout
from kafkalog_broker.groups.modern.modern_group import (
    JOIN_GROUP_EPOCH,
    LEAVE_GROUP_EPOCH,
    LEAVE_GROUP_STATIC_EPOCH,
    with_reported_fields,
)
from kafkalog_broker.groups.modern.modern_groups import new_group_replacing_classic
from kafkalog_broker.groups.modern.target_assignment import put_target_assignment


class ConsumerHeartbeatRequest(NamedTuple):
    """Heartbeat of a member. A field that is None has not changed since the last heartbeat.

    Attributes:
        topics: Names of the topics that the member subscribes to.
        owned: Partitions that the member reports to own.
        regex: Subscription by regular expression; "" for none.
        needs_member_id: False if a joining member may leave out its member ID. Since version 1
            the client makes the ID (KIP-1082).
        may_describe: Whether the sender may describe a topic that the regular expression matches.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    topics: Collection[str] | None = None
    owned: ReportedOwnership | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int | None = None
    regex: str | None = None
    assignor: str | None = None
    needs_member_id: bool = True
    may_describe: MayDescribe = None

    @property
    def is_full(self) -> bool:
        """Whether all fields are set, as when joining or after an error. Then the response contains the assignment."""
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms is not None and subscribes and self.owned is not None


def consumer_group_heartbeat(
    groups: ConsumerGroups, request: ConsumerHeartbeatRequest
) -> GroupResult[HeartbeatResponse]:
    """Process a heartbeat.

    Raises:
        BrokerError: invalid_request, unsupported_assignor, group_id_not_found, group_max_size_reached,
            unknown_member_id, fenced_member_epoch, fenced_instance_id, unreleased_instance_id or
            invalid_regular_expression.
    """
    _check_request(request, groups.context.config)
    if request.member_epoch in (LEAVE_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH):
        return _leave(groups, request)
    is_joining = request.member_epoch == JOIN_GROUP_EPOCH
    changes = GroupChanges(GroupType.CONSUMER, request.group_id)
    settings = groups.context.consumer_settings(request.group_id)

    # 1. Get or create the group and the member.
    group = _group(groups, changes, is_joining=is_joining)
    if request.member_id not in group.members:
        check_capacity(group, settings.max_size)
    member = _member(groups, changes, group, request, is_joining=is_joining)

    # 2. Update the member's subscription, and raise the group epoch if subscriptions or their topics have changed.
    updated = with_reported_fields(
        member, instance_id=request.instance_id, rack_id=request.rack_id,
        topics=None if request.topics is None else frozenset(request.topics), regex=request.regex,
        rebalance_timeout_ms=request.rebalance_timeout_ms, assignor=request.assignor, client_id=request.client_id,
        client_host=request.client_host,
    )  # fmt: skip
    if updated.classic is not None:
        updated = replace(updated, classic=None)
    if updated is not member and updated != member:
        changes.put_member(updated)
    has_other_topics = updated.topics != member.topics
    regex_change = put_regex_change(groups, changes, group, member, updated, request.may_describe)
    epoch = put_consumer_group_epoch(
        groups, changes, group, member, updated, is_bumped=has_other_topics or regex_change.is_resolved
    )

    # 3. Compute the target assignment of the group epoch, if it is due.
    target = put_target_assignment(
        groups, changes, group, epoch, updated, interval_ms=settings.assignment_interval_ms,
        is_large=is_large_consumer_assignment, assign=assign_consumers,
    )  # fmt: skip

    # 4. Reconcile the member with the target assignment.
    reconciled = put_reconciled_member(
        groups, changes, group, updated, target, request.owned,
        has_new_subscription=has_other_topics or regex_change.is_changed,
    )  # fmt: skip

    changes.on_commit(
        lambda: schedule_session_timeout(groups, group.group_id, reconciled.member_id, settings.session_timeout_ms)
    )
    is_assigned = is_joining or request.is_full or member.assigned != reconciled.assigned
    return changes.result(
        HeartbeatResponse(
            reconciled.member_id,
            reconciled.epoch,
            settings.heartbeat_interval_ms,
            assignment_in_response(reconciled.assigned) if is_assigned else None,
        )
    )


def _check_request(request: ConsumerHeartbeatRequest, config: BrokerConfig) -> None:
    """Raise BrokerError invalid_request or unsupported_assignor if the request is not valid."""
    epoch, assignors = request.member_epoch, config.group_consumer_assignors
    needs_member_id = request.needs_member_id or epoch > JOIN_GROUP_EPOCH or epoch == LEAVE_GROUP_EPOCH
    check_not_blank(
        MemberId=request.member_id if needs_member_id else None, GroupId=request.group_id,
        InstanceId=request.instance_id, RackId=request.rack_id,
    )  # fmt: skip
    invalid = None
    if epoch == JOIN_GROUP_EPOCH and request.rebalance_timeout_ms is None:
        invalid = "RebalanceTimeoutMs must be provided in first request."
    elif epoch == JOIN_GROUP_EPOCH and (request.owned is None or request.owned):
        invalid = "TopicPartitions must be empty when (re-)joining."
    elif epoch == JOIN_GROUP_EPOCH and request.topics is None and request.regex is None:
        invalid = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == LEAVE_GROUP_STATIC_EPOCH and request.instance_id is None:
        invalid = "InstanceId can't be null."
    elif epoch < LEAVE_GROUP_STATIC_EPOCH:
        invalid = "MemberEpoch is invalid."
    if invalid is not None:
        raise BrokerError(ErrorCode.invalid_request, invalid)
    if request.assignor is not None and request.assignor not in assignors:
        raise BrokerError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _group(groups: ConsumerGroups, changes: GroupChanges, *, is_joining: bool) -> ConsumerGroup:
    """Return the group. A member that joins creates it, upgrades a classic group or replaces an empty one."""
    group_id = changes.group_id
    classic = groups.classic.groups.get(group_id)
    if classic is None or not is_joining or group_id in groups.groups:
        return groups.group_for_heartbeat(group_id, is_joining=is_joining)
    if classic.state is ClassicGroupState.EMPTY:
        return new_group_replacing_classic(groups, changes)
    return upgrade(groups, changes, classic)


def _member(
    groups: ConsumerGroups, changes: GroupChanges, group: ConsumerGroup, request: ConsumerHeartbeatRequest, *,
    is_joining: bool,
) -> ConsumerMember:  # fmt: skip
    """Return the member as it was before this request: the existing one, a replaced static member, or a new one."""
    instance_id = request.instance_id
    member_id = request.member_id or groups.context.new_id()
    if instance_id is not None and is_joining:
        owner = group.static_member(instance_id)
        if owner is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if owner.classic is None and owner.epoch != LEAVE_GROUP_STATIC_EPOCH:
            raise BrokerError(
                ErrorCode.unreleased_instance_id,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {owner.member_id} member.",
            )
        return put_returned_member(changes, group, owner, member_id)
    if instance_id is None and is_joining and member_id not in group.members:
        return ConsumerMember(member_id)
    member = group.identified_member(member_id, instance_id)
    check_reconciling_member_epoch(GroupType.CONSUMER, member, request.member_epoch, request.owned)
    return member


def _leave(groups: ConsumerGroups, request: ConsumerHeartbeatRequest) -> GroupResult[HeartbeatResponse]:
    group = groups.group(request.group_id)
    member = group.identified_member(request.member_id, request.instance_id)
    changes = GroupChanges(GroupType.CONSUMER, group.group_id)
    if request.member_epoch == LEAVE_GROUP_STATIC_EPOCH:
        # Its partitions count as assigned in epoch 0, so that it can commit their offsets after it has joined again.
        assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()}
        left = replace(member, epoch=LEAVE_GROUP_STATIC_EPOCH, assigned=assigned, pending_revocation={})
        changes.put_current_assignment(left)
    else:
        put_removal(groups, changes, group, [member])
    return changes.result(HeartbeatResponse(request.member_id, request.member_epoch))
