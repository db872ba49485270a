"""Reconciliation and removal of the members of a consumer group, and the removal of the group itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.consumer.group_downgrade import (
    cancel_background_tasks,
    downgrade,
    is_downgraded_without,
    put_group_removal,
)
from kafkalog_broker.groups.modern.current_assignment import Reported, next_assignment, still_owns, with_assignment
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_records import GroupType, MemberState
from kafkalog_broker.groups.modern.member_timers import cancel_member_timers, schedule_rebalance_timeout
from kafkalog_broker.groups.modern.modern_groups import ModernGroups
from kafkalog_broker.groups.modern.target_assignment import TargetAssignment

ConsumerGroups = ModernGroups[ConsumerGroup]


def put_reconciled_member(
    groups: ConsumerGroups, changes: GroupChanges, group: ConsumerGroup, member: ConsumerMember,
    target: TargetAssignment, reported: Reported | None, *, has_new_subscription: bool,
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
    member: ConsumerMember, reported: Reported | None, subscribed: Collection[UUID]
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


def remove_member(groups: ConsumerGroups, group: ConsumerGroup, member: ConsumerMember) -> GroupResult[None]:
    changes = GroupChanges(GroupType.CONSUMER, group.group_id)
    put_removal(groups, changes, group, [member])
    return changes.result(None)


def put_removal(
    groups: ConsumerGroups, changes: GroupChanges, group: ConsumerGroup, members: Sequence[ConsumerMember]
) -> None:
    """Remove members and raise the group epoch. If only classic members remain, downgrade the group instead."""
    if not members:
        return
    leaving = {member.member_id for member in members}
    if is_downgraded_without(group, leaving, groups.context.config):
        reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
        downgrade(groups, changes, group, leaving=leaving, reason=reason)
    else:
        for regex in group.subscribed_regexes.keys() - group.subscribed_regexes_after(members).keys():
            changes.remove_regex(regex)
        for member in members:
            changes.remove_member(member.member_id)
        topics = group.subscribed_topics_after(members) | group.matched_topics_after(members)
        changes.put_epoch(group.epoch + 1, groups.context.metadata_hash(topics))
    changes.on_commit(lambda: cancel_member_timers(groups, group.group_id, leaving))


def remove_group(groups: ConsumerGroups, group: ConsumerGroup) -> GroupResult[None]:
    """Remove a group without members. Raises BrokerError non_empty_group."""
    if group.members:
        raise BrokerError(ErrorCode.non_empty_group, f"group {group.group_id!r} is {group.state.value}")
    changes = GroupChanges(GroupType.CONSUMER, group.group_id)
    put_group_removal(changes, group, group.members)
    changes.on_commit(lambda: cancel_background_tasks(groups, group.group_id))
    return changes.result(None)


def put_returned_member(
    changes: GroupChanges, group: ConsumerGroup, owner: ConsumerMember, member_id: str
) -> ConsumerMember:
    """Replace a static member that has joined again with another member ID, and return the new member.

    It keeps the assignment and the target assignment.
    """
    member = replace(owner, member_id=member_id, epoch=0, previous_epoch=0)
    changes.remove_member(owner.member_id)
    changes.put_member(member)
    changes.put_target_assignment(member_id, group.target.get(owner.member_id, {}))
    changes.put_current_assignment(member)
    return member
