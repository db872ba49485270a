"""Removal and replacement of the members of a consumer group, and the removal of the group itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.consumer.group_downgrade import (
    cancel_background_tasks,
    downgrade,
    is_downgraded_without,
    put_group_removal,
)
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_records import GroupType
from kafkalog_broker.groups.modern.member_timers import cancel_member_timers
from kafkalog_broker.groups.modern.modern_groups import ModernGroups

ConsumerGroups = ModernGroups[ConsumerGroup]


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
