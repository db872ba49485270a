"""Removal of the members of a share group, and of the group itself."""

from __future__ import annotations

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_records import GroupType
from kafkalog_broker.groups.modern.member_timers import cancel_member_timers
from kafkalog_broker.groups.modern.modern_group import ModernMember
from kafkalog_broker.groups.modern.target_assignment import cancel_background_assignment
from kafkalog_broker.groups.share.share_group import ShareGroup
from kafkalog_broker.groups.share.share_partition_initialization import ShareGroups


def remove_member(groups: ShareGroups, group: ShareGroup, member: ModernMember) -> GroupResult[None]:
    changes = GroupChanges(GroupType.SHARE, group.group_id)
    put_removal(groups, changes, group, member)
    return changes.result(None)


def put_removal(groups: ShareGroups, changes: GroupChanges, group: ShareGroup, member: ModernMember) -> None:
    """Remove a member and raise the group epoch."""
    changes.remove_member(member.member_id)
    metadata_hash = groups.context.metadata_hash(group.subscribed_topics_after([member]))
    changes.put_epoch(group.epoch + 1, metadata_hash)
    changes.on_commit(lambda: cancel_member_timers(groups, group.group_id, [member.member_id]))


def remove_group(groups: ShareGroups, group: ShareGroup) -> GroupResult[None]:
    """Remove a group without members. Raises BrokerError non_empty_group."""
    if group.members:
        raise BrokerError(ErrorCode.non_empty_group, f"group {group.group_id!r} is {group.state.value}")
    changes = GroupChanges(GroupType.SHARE, group.group_id)
    changes.remove_members_of_group(group.members)
    changes.remove_state_partitions()
    changes.remove_epoch()
    changes.on_commit(lambda: cancel_background_assignment(groups, group.group_id))
    return changes.result(None)
