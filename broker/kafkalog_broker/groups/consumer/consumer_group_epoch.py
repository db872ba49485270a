"""The epoch of a consumer group, after a request of one of its members."""

from __future__ import annotations

from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.modern.group_changes import GroupChanges
from kafkalog_broker.groups.modern.group_epoch import put_group_epoch
from kafkalog_broker.groups.modern.modern_groups import ModernGroups


def put_consumer_group_epoch(
    groups: ModernGroups[ConsumerGroup], changes: GroupChanges, group: ConsumerGroup, member: ConsumerMember,
    updated: ConsumerMember, *, is_bumped: bool,
) -> int:  # fmt: skip
    """Put the next epoch if it is due, and return the group's epoch after this request, see `put_group_epoch`."""
    if group.has_topics_metadata_record:
        changes.remove_topics_metadata()
    return put_group_epoch(
        groups, changes, group, member, updated, is_bumped=is_bumped,
        matched_topics=lambda: group.matched_topics_after([member], [updated]),
    )  # fmt: skip
