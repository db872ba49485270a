"""Reconciliation of a member of a consumer group with its target assignment."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from uuid import UUID

from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.consumer.consumer_group_members import ConsumerGroups
from kafkalog_broker.groups.modern.current_assignment import (
    ReportedOwnership,
    next_assignment,
    still_owns,
    with_assignment,
)
from kafkalog_broker.groups.modern.group_changes import GroupChanges
from kafkalog_broker.groups.modern.group_records import GroupType, MemberState
from kafkalog_broker.groups.modern.member_timers import schedule_rebalance_timeout
from kafkalog_broker.groups.modern.target_assignment import TargetAssignment


def put_reconciled_member(
    groups: ConsumerGroups, changes: GroupChanges, group: ConsumerGroup, member: ConsumerMember,
    target: TargetAssignment, reported: ReportedOwnership | None, *, has_new_subscription: bool,
) -> ConsumerMember:  # fmt: skip
    """Bring a member one step closer to its target assignment, put its record if it has changed, and return it.

    Args:
        member: The member, with the subscription in this request.
        reported: Partitions that the member reports to own; None if unknown.
        has_new_subscription: Revoke topics that the member no longer subscribes to, even while it has not reached the
            target assignment.
    """
    if not has_new_subscription and member.is_reconciled_to(target.epoch):
        return member
    subscribed = set(groups.context.topic_ids(group.topics_of(member)))
    reconciled = next_assignment(
        GroupType.CONSUMER, member, target.epoch,
        {topic_id: partitions for topic_id, partitions in target.partitions.items() if topic_id in subscribed},
        reported, is_free=partial(group.is_free_for, member), next_revocation_epoch=member.epoch,
    )  # fmt: skip
    if has_new_subscription and reconciled is member:
        reconciled = _without_unsubscribed(member, reported, subscribed)
    if reconciled != member:
        changes.put_current_assignment(reconciled)
        changes.on_commit(lambda: schedule_rebalance_timeout(groups, group.group_id, reconciled))
    return reconciled


def _without_unsubscribed(
    member: ConsumerMember, reported: ReportedOwnership | None, subscribed: Collection[UUID]
) -> ConsumerMember:
    """Revoke the topics that a member no longer subscribes to, in its epoch."""
    unsubscribed = {topic_id for topic_id in member.assigned if topic_id not in subscribed}
    if not unsubscribed:
        return member
    assigned = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in unsubscribed}
    pending = {topic_id: dict(epochs) for topic_id, epochs in member.pending_revocation.items()}
    for topic_id in unsubscribed:
        pending.setdefault(topic_id, {}).update(member.assigned[topic_id])
    if still_owns(pending, reported):
        return with_assignment(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, pending)
    return replace(member, previous_epoch=member.epoch, assigned=assigned)
