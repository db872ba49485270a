"""Upgrade of a classic group with members to a consumer group, when a member of that protocol joins (KIP-848)."""

from __future__ import annotations

import logging

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import ClassicGroup
from kafkalog_broker.groups.classic.classic_group_records import group_key
from kafkalog_broker.groups.classic.consumer_protocol import PROTOCOL_TYPE, parse_assignment, parse_subscription
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.consumer.consumer_group_members import ConsumerGroups
from kafkalog_broker.groups.consumer.topic_partitions import partitions_by_id
from kafkalog_broker.groups.modern.group_changes import GroupChanges
from kafkalog_broker.groups.modern.group_records import ClassicMetadata, Partitions
from kafkalog_broker.groups.modern.member_timers import schedule_session_timeout
from kafkalog_broker.storage.topic_registry import TopicRegistry

_log = logging.getLogger(__name__)


def upgrade(groups: ConsumerGroups, changes: GroupChanges, classic: ClassicGroup) -> ConsumerGroup:
    """Replace a classic group by a consumer group and return it.

    The generation becomes the group epoch and the epoch of all members, which own their last assigned partitions.

    Raises:
        BrokerError: group_id_not_found if the upgrade is not allowed or a member is not a consumer.
    """
    _check_upgrade_allowed(classic, groups.context.config)
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.assignment_epoch = classic.generation
    for member in classic.members.values():
        try:
            target = _assigned_partitions(classic.group_id, member.assignment, groups.context.topics)
            # In its first join phase a group has no protocol yet. Every protocol of a member contains its subscription.
            metadata = member.protocols[0][1] if classic.protocol is None else member.metadata(classic.protocol)
            subscription = parse_subscription(metadata)
        except (ValueError, KeyError):
            raise _upgrade_refused(classic.group_id, "because the embedded consumer protocol is malformed.") from None
        group.target[member.member_id] = target
        group.put(
            ConsumerMember(
                member.member_id, group.epoch, group.epoch,
                instance_id=member.group_instance_id, rack_id=subscription.rack_id or None,
                rebalance_timeout_ms=member.rebalance_timeout_ms, client_id=member.client_id,
                client_host=member.client_host, topics=frozenset(subscription.topics),
                assigned={topic_id: dict.fromkeys(indexes, group.epoch) for topic_id, indexes in target.items()},
                classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
            )
        )  # fmt: skip
    group.metadata_hash = groups.context.metadata_hash(group.subscribed_topics)
    _put_upgraded_group(changes, group)
    changes.on_commit(lambda: _complete_upgrade(groups, classic, group))
    return group


def _check_upgrade_allowed(group: ClassicGroup, config: BrokerConfig) -> None:
    reason = None
    if config.group_consumer_migration_policy.lower() not in {"upgrade", "bidirectional"}:
        reason = "online upgrade is disabled"
    elif group.protocol_type != PROTOCOL_TYPE:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > config.group_consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _upgrade_refused(group.group_id, f"because {reason}.")


def _upgrade_refused(group_id: str, reason: str) -> BrokerError:
    message = f"Cannot upgrade classic group {group_id} to consumer group {reason}"
    _log.info("%s", message)
    return BrokerError(ErrorCode.group_id_not_found, message)


def _assigned_partitions(group_id: str, assignment: bytes, topics: TopicRegistry) -> Partitions:
    if not assignment:
        return {}  # the member has not synced yet
    partitions, user_data = parse_assignment(assignment)
    if user_data:
        raise _upgrade_refused(
            group_id,
            "because an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
            "default assignor before re-attempting the upgrade.",
        )
    return partitions_by_id(partitions, topics)


def _put_upgraded_group(changes: GroupChanges, group: ConsumerGroup) -> None:
    changes.records.append((group_key(group.group_id), None))
    for member in group.members.values():
        changes.put_member(member)
    changes.put_epoch(group.epoch, group.metadata_hash)
    for member_id, target in group.target.items():
        changes.put_target_assignment(member_id, target)
    changes.put_target_assignment_epoch(group.assignment_epoch, 0)
    for member in group.members.values():
        changes.put_current_assignment(member)


def _complete_upgrade(groups: ConsumerGroups, classic: ClassicGroup, group: ConsumerGroup) -> None:
    _log.info("group %.200r: the classic group has become a consumer group", group.group_id)
    groups.classic.forget(classic)
    for member in group.members.values():
        assert member.classic is not None
        schedule_session_timeout(groups, group.group_id, member.member_id, member.classic.session_timeout_ms)
