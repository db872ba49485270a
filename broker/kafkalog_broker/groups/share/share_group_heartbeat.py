"""ShareGroupHeartbeat (KIP-932): a member joins, stays or leaves (GroupMetadataManager.shareGroupHeartbeat).

Only partitions whose state is initialized are assigned.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_epoch import put_group_epoch
from kafkalog_broker.groups.modern.group_records import GroupType
from kafkalog_broker.groups.modern.heartbeat_checks import check_capacity, check_member_epoch, check_not_blank
from kafkalog_broker.groups.modern.heartbeat_response import HeartbeatResponse, assignment_in_response
from kafkalog_broker.groups.modern.member_timers import schedule_session_timeout
from kafkalog_broker.groups.modern.modern_group import (
    JOIN_GROUP_EPOCH,
    LEAVE_GROUP_EPOCH,
    ModernMember,
    with_reported_fields,
)
from kafkalog_broker.groups.modern.target_assignment import TargetAssignment, put_target_assignment
from kafkalog_broker.groups.share.share_group import ShareGroup
from kafkalog_broker.groups.share.share_group_members import put_removal
from kafkalog_broker.groups.share.share_partition_initialization import ShareGroups, put_initialization
from kafkalog_broker.groups.share.share_target_assignment import assign_share_members, is_large_share_assignment

ASSIGNOR = "simple"  # name of the only assignor of share groups, for their descriptions


class ShareHeartbeatRequest(NamedTuple):
    """Heartbeat of a member. A field that is None has not changed since the last heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topics: Collection[str] | None = None
    client_id: str = ""
    client_host: str = ""


def share_group_heartbeat(groups: ShareGroups, request: ShareHeartbeatRequest) -> GroupResult[HeartbeatResponse]:
    """Process a heartbeat.

    Raises:
        BrokerError: invalid_request, group_id_not_found, group_max_size_reached, unknown_member_id or
            fenced_member_epoch.
    """
    _check_request(request)
    if request.member_epoch == LEAVE_GROUP_EPOCH:
        return _leave(groups, request)
    is_joining = request.member_epoch == JOIN_GROUP_EPOCH
    changes = GroupChanges(GroupType.SHARE, request.group_id)
    context = groups.context

    # 1. Get or create the group and the member.
    group = groups.group_for_heartbeat(request.group_id, is_joining=is_joining)
    settings = context.share_settings(request.group_id)
    if request.member_id not in group.members:
        check_capacity(group, settings.max_size)
    member = _member(group, request, is_joining=is_joining)

    # 2. Update the member's subscription. The group epoch rises if subscriptions or their topics have changed, or if
    # share partitions have been initialized since the last target assignment.
    updated = with_reported_fields(
        member, rack_id=request.rack_id, topics=None if request.topics is None else frozenset(request.topics),
        client_id=request.client_id, client_host=request.client_host,
    )  # fmt: skip
    if updated is not member and updated != member:
        changes.put_member(updated)
    has_other_topics = updated.topics != member.topics
    is_assigned = group.assignment_epoch >= group.epoch
    has_unassigned_partitions = is_assigned and bool(group.members) and not group.has_all_assigned()
    epoch = put_group_epoch(
        groups, changes, group, member, updated, is_bumped=has_unassigned_partitions or has_other_topics,
        matched_topics=frozenset,
    )  # fmt: skip

    # 3. Compute the target assignment of the group epoch, if it is due.
    target = put_target_assignment(
        groups, changes, group, epoch, updated,
        interval_ms=settings.assignment_interval_ms,
        is_large=is_large_share_assignment,
        assign=assign_share_members,
    )  # fmt: skip

    # 4. Give the member its target assignment. If the group epoch has risen, the member loses topics that it no longer
    # subscribes to, even if the next target assignment is not computed yet.
    assigned = updated
    if has_other_topics or epoch > group.epoch or not updated.is_reconciled_to(target.epoch):
        assigned = _assigned_member(context, updated, target)
        if assigned != updated:
            changes.put_current_assignment(assigned)

    # 5. Initialize the share partitions that members subscribe to.
    subscribed: Collection[str] = group.subscribed_topics
    if has_other_topics:
        subscribed = group.subscribed_topics_after([member], [updated])
    put_initialization(groups, changes, group, epoch, subscribed)

    changes.on_commit(
        lambda: schedule_session_timeout(groups, group.group_id, assigned.member_id, settings.session_timeout_ms)
    )
    is_full = request.topics is not None
    return changes.result(
        HeartbeatResponse(
            assigned.member_id,
            assigned.epoch,
            settings.heartbeat_interval_ms,
            assignment_in_response(assigned.assigned)
            if is_joining or is_full or member.assigned != assigned.assigned
            else None,
        )
    )


def _check_request(request: ShareHeartbeatRequest) -> None:
    """Raise BrokerError invalid_request if the request is not valid."""
    check_not_blank(MemberId=request.member_id, GroupId=request.group_id, RackId=request.rack_id)
    if request.member_epoch == JOIN_GROUP_EPOCH and not request.topics:
        raise BrokerError(ErrorCode.invalid_request, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_GROUP_EPOCH:
        raise BrokerError(ErrorCode.invalid_request, "MemberEpoch is invalid.")


def _member(group: ShareGroup, request: ShareHeartbeatRequest, *, is_joining: bool) -> ModernMember:
    """Return the member before this request. A joining member is new and has no subscription yet."""
    if is_joining and request.member_id not in group.members:
        return ModernMember(request.member_id)
    member = group.member(request.member_id)
    stale_epoch_detail = f", and it does not match the previous member epoch ({member.previous_epoch})"
    check_member_epoch(
        GroupType.SHARE, member, request.member_epoch, accepts_previous=True, stale_epoch_detail=stale_epoch_detail
    )
    return member


def _assigned_member(context: GroupContext, member: ModernMember, target: TargetAssignment) -> ModernMember:
    subscribed = set(context.topic_ids(member.topics))
    partitions = {topic_id: indexes for topic_id, indexes in target.partitions.items() if topic_id in subscribed}
    if target.epoch == member.epoch:
        return replace(member, assigned=partitions)
    return replace(member, epoch=target.epoch, previous_epoch=member.epoch, assigned=partitions)


def _leave(groups: ShareGroups, request: ShareHeartbeatRequest) -> GroupResult[HeartbeatResponse]:
    group = groups.group(request.group_id)
    changes = GroupChanges(GroupType.SHARE, group.group_id)
    put_removal(groups, changes, group, group.member(request.member_id))
    return changes.result(HeartbeatResponse(request.member_id, request.member_epoch))
