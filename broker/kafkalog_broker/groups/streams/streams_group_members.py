"""Removal of the members of a streams group, and of the group itself."""

from __future__ import annotations

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_records import GroupType
from kafkalog_broker.groups.modern.member_timers import cancel_member_timers
from kafkalog_broker.groups.modern.modern_groups import ModernGroups
from kafkalog_broker.groups.modern.target_assignment import cancel_background_assignment
from kafkalog_broker.groups.streams.initial_rebalance import cancel_initial_rebalance
from kafkalog_broker.groups.streams.streams_group import StreamsGroup, StreamsMember

StreamsGroups = ModernGroups[StreamsGroup]


def remove_member(groups: StreamsGroups, group: StreamsGroup, member: StreamsMember) -> GroupResult[None]:
    changes = GroupChanges(GroupType.STREAMS, group.group_id)
    put_removal(groups, changes, group, member)
    return changes.result(None)


def put_removal(groups: StreamsGroups, changes: GroupChanges, group: StreamsGroup, member: StreamsMember) -> None:
    """Remove a member and raise the group epoch."""
    changes.remove_member(member.member_id)
    changes.put_streams_epoch(
        group.epoch + 1, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs
    )
    changes.on_commit(lambda: cancel_member_timers(groups, group.group_id, [member.member_id]))


def remove_group(groups: StreamsGroups, group: StreamsGroup) -> GroupResult[None]:
    """Remove a group without members. Raises BrokerError non_empty_group."""
    if group.members:
        raise BrokerError(ErrorCode.non_empty_group, f"group {group.group_id!r} is {group.state.value}")
    changes = GroupChanges(GroupType.STREAMS, group.group_id)
    changes.remove_members_of_group(group.members)
    changes.remove_epoch()
    changes.remove_topology()

    def cancel() -> None:
        cancel_initial_rebalance(groups, group.group_id)
        cancel_background_assignment(groups, group.group_id)

    changes.on_commit(cancel)
    return changes.result(None)
