"""Downgrade of a consumer group to a classic group, when its last member of the consumer protocol leaves (KIP-848)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.groups.classic.classic_group import ClassicGroup, ClassicGroupState
from kafkalog_broker.groups.classic.classic_group_member import ClassicGroupMember
from kafkalog_broker.groups.classic.consumer_protocol import PROTOCOL_TYPE, encode_assignment, protocol_version
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.consumer.topic_partitions import partitions_by_name
from kafkalog_broker.groups.consumer.topic_regex_resolver import cancel_resolving
from kafkalog_broker.groups.modern.group_changes import GroupChanges
from kafkalog_broker.groups.modern.member_timers import cancel_member_timers
from kafkalog_broker.groups.modern.modern_groups import ModernGroups
from kafkalog_broker.groups.modern.target_assignment import cancel_background_assignment

_log = logging.getLogger(__name__)


def is_downgraded_without(group: ConsumerGroup, leaving: Collection[str], config: BrokerConfig) -> bool:
    """Return whether the group becomes a classic group when members leave, because all others are classic members."""
    remaining = [member for member_id, member in group.members.items() if member_id not in leaving]
    all_classic = bool(remaining) and all(member.classic is not None for member in remaining)
    return all_classic and _is_downgrade_allowed(group, len(remaining), config)


def is_downgraded_by_replacing(group: ConsumerGroup, replaced: ConsumerMember, config: BrokerConfig) -> bool:
    """Return whether the group becomes a classic group when a classic static member replaces `replaced`."""
    is_only_other = group.classic_members == len(group.members) - 1 and replaced.classic is None
    return is_only_other and _is_downgrade_allowed(group, len(group.members), config)


def downgrade(
    groups: ModernGroups[ConsumerGroup], changes: GroupChanges, group: ConsumerGroup, *,
    leaving: Collection[str] = (), joining: ConsumerMember | None = None, reason: str | None,
) -> None:  # fmt: skip
    """Replace a consumer group by a classic group with its remaining members.

    Args:
        leaving: Members that leave.
        joining: A classic static member whose records are in `changes`. It replaces the member with its instance ID.
        reason: Reason for which the classic group begins with a rebalance; None if it does not.
    """
    replaced = None if joining is None else group.static_member(joining.instance_id)
    put_group_removal(changes, group, [
        joining.member_id if joining is not None and member is replaced else member_id
        for member_id, member in group.members.items()
    ])  # fmt: skip
    classic = ClassicGroup(group.group_id, groups.context.clock.now_ms)
    classic.state = ClassicGroupState.STABLE
    classic.generation = group.epoch
    for member_id, member in group.members.items():
        if member_id not in leaving and member is not replaced:
            classic.add(_classic_member(member))
    if joining is not None:
        classic.add(_classic_member(joining))
    classic.settle_protocol()
    for classic_member in classic.members.values():
        target = group.target.get(classic_member.member_id, {})
        if joining is not None and classic_member.member_id == joining.member_id:
            target = group.target_of(joining)
        version = protocol_version(classic_member.metadata(classic.protocol))
        classic_member.assignment = encode_assignment(partitions_by_name(target, groups.context.topics), version)
    changes.records.append(classic.to_record())

    def take_over() -> None:
        cancel_background_tasks(groups, group.group_id)
        cancel_member_timers(groups, group.group_id, classic.members)
        groups.classic.add_downgraded(classic, reason)
        _log.info("group %.200r: the consumer group has become a classic group", group.group_id)

    changes.on_commit(take_over)


def put_group_removal(changes: GroupChanges, group: ConsumerGroup, member_ids: Iterable[str]) -> None:
    """Remove all records of a group, in Kafka's order.

    Args:
        member_ids: IDs of all members that have records in the log or in `changes`.
    """
    changes.remove_members_of_group(member_ids)
    for regex in group.regexes:
        changes.remove_regex(regex)
    changes.remove_topics_metadata()
    changes.remove_epoch()


def cancel_background_tasks(groups: ModernGroups[ConsumerGroup], group_id: str) -> None:
    """Drop the background tasks of a group that was removed."""
    cancel_background_assignment(groups, group_id)
    cancel_resolving(groups, group_id)


def _is_downgrade_allowed(group: ConsumerGroup, members: int, config: BrokerConfig) -> bool:
    reason = None
    if config.group_consumer_migration_policy.lower() not in {"downgrade", "bidirectional"}:
        reason = "the online downgrade is disabled"
    elif members > config.group_max_size:
        reason = "its group size is greater than classic group max size"
    if reason is not None:
        _log.info("Cannot downgrade consumer group %.200s to classic group because %s.", group.group_id, reason)
    return reason is None


def _classic_member(member: ConsumerMember) -> ClassicGroupMember:
    assert member.classic is not None
    return ClassicGroupMember(
        member.member_id, member.instance_id, member.client_id, member.client_host, member.rebalance_timeout_ms,
        member.classic.session_timeout_ms, PROTOCOL_TYPE, member.classic.protocols,
    )  # fmt: skip
